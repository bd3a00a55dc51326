"""The training loop from plain_pytorch.py as a LightningModule.

python docs/examples/lightning_module.py photos
"""

import argparse
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader

import pirl_plugin as pirl


class PIRLModule(lightning.LightningModule):
    """Lightning's checkpoints also hold the memory bank.

    Args:
        model: trunk, heads and loss.
        labels: class labels, used only for evaluation; None if unknown.
    """

    def __init__(self, model: pirl.PIRL, labels: torch.Tensor | None) -> None:
        super().__init__()
        self.model = model
        self.labels = labels

    def on_train_start(self) -> None:
        """Initialize a new memory bank with embeddings; keep one from a checkpoint."""
        if not self.model.bank.visited.any():
            self.model.fill_bank(self.trainer.train_dataloader)

    def on_train_epoch_start(self) -> None:
        """Set the epoch, which seeds the views."""
        self.trainer.train_dataloader.dataset.set_epoch(self.current_epoch)

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Compute Eq. 5."""
        loss = self.model(batch)
        self.log("loss", loss, prog_bar=True, batch_size=len(batch["index"]))
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Update the memory bank after the optimizer step."""
        self.model.update()

    def on_train_epoch_end(self) -> None:
        """Print memory bank statistics."""
        measures = pirl.measure_bank(self.model.bank.rows, self.labels)
        self.print(self.current_epoch, measures)

    def configure_optimizers(self) -> dict[str, Any]:
        """Return SGD with a cosine schedule, as in the paper; the loss has no parameters."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def main() -> None:
    """Train and save the trunk."""
    parser = argparse.ArgumentParser()
    parser.add_argument("images", help="folder of images")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    options = parser.parse_args()

    lightning.seed_everything(0)
    views = pirl.JigsawViews(
        image_size=64, patches_crop_size=96, patch_size=24, image_scale=(0.2, 1.0)
    )
    data = pirl.ImageDataset(options.images, views)
    labels = data.labels()
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        sync_batchnorm=torch.cuda.is_available(),
        logger=False,
        log_every_n_steps=1,
    )
    batch_size = min(options.batch_size, len(data) // trainer.world_size)
    loader = DataLoader(
        data, batch_size, shuffle=True, drop_last=True, collate_fn=pirl.collate_views
    )

    trunk = pirl.WideResNet(10, width=0.5)
    trainer.fit(PIRLModule(pirl.PIRL(trunk, data), labels), loader)
    pirl.save_trunk(trunk, "trunk.torch")


if __name__ == "__main__":
    main()
