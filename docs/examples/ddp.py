"""The training loop from plain_pytorch.py on several processes, one per GPU (or on a CPU).

torchrun --nproc-per-node 2 docs/examples/ddp.py photos
"""

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import pirl_plugin as pirl


def main() -> None:
    """Train on this rank's share of the images."""
    parser = argparse.ArgumentParser()
    parser.add_argument("images", help="folder of images")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    options = parser.parse_args()

    gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    distributed.init_process_group("nccl" if gpu else "gloo")
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if gpu else "cpu")
    if gpu:
        torch.cuda.set_device(device)

    views = pirl.JigsawViews(
        image_size=64, patches_crop_size=96, patch_size=24, image_scale=(0.2, 1.0)
    )
    data = pirl.ImageDataset(options.images, views)
    labels = data.labels()
    sampler = DistributedSampler(data, drop_last=True)
    batch_size = min(options.batch_size, len(data) // distributed.get_world_size())
    loader = DataLoader(
        data, batch_size, sampler=sampler, drop_last=True, collate_fn=pirl.collate_views
    )

    trunk = pirl.WideResNet(10, width=0.5).to(memory_format=torch.channels_last)  # as the images
    model = pirl.PIRL(trunk, data)
    if gpu:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model.to(device)
    parallel = DistributedDataParallel(model)  # averages gradients over all processes
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    steps = options.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    model.fill_bank(loader)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        data.set_epoch(epoch)  # torch's seed is the same on all ranks; views differ by image
        for batch in loader:
            loss = parallel(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            model.update()  # gathers f(v_I) from all ranks, so every bank is the same
        mean = loss.detach()  # the mean over ranks is the mean over all images
        distributed.all_reduce(mean)
        if distributed.get_rank() == 0:
            mean /= distributed.get_world_size()
            print(epoch, mean.item(), pirl.measure_bank(model.bank.rows, labels))

    if distributed.get_rank() == 0:
        pirl.save_trunk(trunk, "trunk.torch")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
