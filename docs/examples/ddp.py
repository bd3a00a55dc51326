"""The loop of plain_pytorch.py on several processes, one for each GPU (or on a CPU).

torchrun --nproc-per-node 2 docs/examples/ddp.py photos
"""

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.models import resnet18

from pirl_plugin import (
    ImageDataset,
    JigsawViews,
    PIRLHead,
    PIRLLoss,
    collate_views,
    normalize_images,
)


class Network(nn.Module):
    """Trunk and both heads in one module, so that DDP reduces all gradients together."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = resnet18()
        self.trunk.fc = nn.Identity()
        self.f, self.g = PIRLHead(512), PIRLHead(512, num_patches=9)

    def forward(self, images: torch.Tensor, patches: torch.Tensor) -> list[torch.Tensor]:
        """Return ``[g(v_It), f(v_I)]``, each ``(B, 128)``."""
        f_image = self.f(self.trunk(normalize_images(images)))
        return [self.g(self.trunk(normalize_images(patches))), f_image]


def main() -> None:
    """Train on this process's share of the images."""
    parser = argparse.ArgumentParser()
    parser.add_argument("images", help="folder of images")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    options = parser.parse_args()

    gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    distributed.init_process_group("nccl" if gpu else "gloo")
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if gpu else "cpu")
    if gpu:
        torch.cuda.set_device(device)
    torch.manual_seed(0)

    data = ImageDataset(
        options.images, JigsawViews(image_size=64, patches_crop_size=96, patch_size=24)
    )
    sampler = DistributedSampler(data, drop_last=True)
    size = min(options.batch_size, len(data) // distributed.get_world_size())
    loader = DataLoader(data, size, sampler=sampler, drop_last=True, collate_fn=collate_views)
    network = nn.SyncBatchNorm.convert_sync_batchnorm(Network()) if gpu else Network()
    # Images are channels-last. With weights in the same format, DDP need not copy the gradients.
    network = network.to(device, memory_format=torch.channels_last)
    model = DistributedDataParallel(network)
    # Every rank holds the same bank; bank={"placement": "sharded"} divides its rows among ranks.
    loss = PIRLLoss(
        num_train_samples=len(data), num_negatives=1024, estimator="info_nce", temperature=0.2
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)

    for epoch in range(options.epochs):
        data.set_epoch(epoch)
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {name: values.to(device) for name, values in batch.items()}
            outputs = model(batch["images"], batch["patches"])
            value = loss(
                outputs[-1], outputs[:-1], batch["index"]
            )  # DDP averages its gradient over the ranks
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            loss.update(batch["index"], outputs[-1])  # gathers f(v_I) from all ranks
        mean = value.detach()  # the mean over the ranks is the mean over all images
        distributed.all_reduce(mean)
        if distributed.get_rank() == 0:
            print(epoch, mean.item() / distributed.get_world_size())

    if distributed.get_rank() == 0:
        torch.save(network.trunk.state_dict(), "trunk.pth")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
