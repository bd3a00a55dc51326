"""The loop of plain_pytorch.py as a LightningModule.

python docs/examples/lightning_module.py photos
"""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.models import resnet18

from pirl_plugin import (
    ImageDataset,
    JigsawViews,
    PIRLHead,
    PIRLLoss,
    collate_views,
    normalize_images,
)


class PIRL(lightning.LightningModule):
    """Trunk, heads and loss; Lightning's checkpoints also hold the memory bank.

    Args:
        num_train_samples: number of training images.
        num_negatives: N, for each image.
    """

    def __init__(self, num_train_samples: int, num_negatives: int = 1024) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.trunk = resnet18()
        self.trunk.fc = nn.Identity()
        self.f, self.g = PIRLHead(512), PIRLHead(512, num_patches=9)
        self.loss = PIRLLoss(
            num_train_samples=num_train_samples,
            num_negatives=num_negatives,
            estimator="info_nce",
            temperature=0.2,
        )

    def on_train_epoch_start(self) -> None:
        """Set the epoch, which keys the random numbers of the views."""
        self.trainer.train_dataloader.dataset.set_epoch(self.current_epoch)

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> dict:
        """Compute Eq. 5."""
        f_image = self.f(self.trunk(normalize_images(batch["images"])))
        g_transformed = self.g(self.trunk(normalize_images(batch["patches"])))
        value = self.loss(f_image, g_transformed, batch["index"])
        self.log("loss", value, prog_bar=True, batch_size=len(batch["index"]))
        return {"loss": value, "f_image": f_image.detach()}

    def on_train_batch_end(self, outputs: dict, batch: dict, batch_idx: int) -> None:
        """Move the memory bank, after the optimiser's step."""
        self.loss.update(batch["index"], outputs["f_image"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD, as in the paper; the loss has no parameters."""
        return torch.optim.SGD(self.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)


def main() -> None:
    """Train, and save the trunk."""
    parser = argparse.ArgumentParser()
    parser.add_argument("images", help="folder of images")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()

    lightning.seed_everything(0)
    data = ImageDataset(
        options.images, JigsawViews(image_size=64, patches_crop_size=96, patch_size=24)
    )
    trainer = lightning.Trainer(max_epochs=options.epochs, logger=False, log_every_n_steps=1)
    size = min(options.batch_size, len(data) // trainer.world_size)
    loader = DataLoader(data, size, shuffle=True, drop_last=True, collate_fn=collate_views)
    model = PIRL(len(data))
    trainer.fit(model, loader)
    torch.save(model.trunk.state_dict(), "trunk.pth")


if __name__ == "__main__":
    main()
