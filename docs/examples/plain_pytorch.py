"""PIRL with jigsaw in a plain PyTorch loop, on a folder ``photos`` of images.

python docs/examples/plain_pytorch.py
"""

import torch
from torch.utils.data import DataLoader

import pirl_plugin as pirl

epochs, device = 40, "cuda" if torch.cuda.is_available() else "cpu"
views = pirl.JigsawViews(image_size=64, patches_crop_size=96, patch_size=24, image_scale=(0.2, 1.0))
data = pirl.ImageDataset("photos", views)
batch_size = min(32, len(data))
loader = DataLoader(data, batch_size, shuffle=True, drop_last=True, collate_fn=pirl.collate_views)

trunk = pirl.WideResNet(10, width=0.5)  # or a network of torchvision or timm, without its fc
f, g = pirl.PIRLHead(256), pirl.PIRLHead(256, num_patches=9)
loss = pirl.PIRLLoss(
    len(data), num_negatives=1024, estimator="info_nce", temperature=0.2, lambda_invariance=0.75
)
model = torch.nn.ModuleList([trunk, f, g, loss]).to(device)  # the loss holds the memory bank
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))

for epoch in range(epochs):
    for batch in loader:
        batch = {name: values.to(device) for name, values in batch.items()}
        images, patches = (pirl.normalize_images(batch[name]) for name in ("images", "patches"))
        f_image = f(trunk(images))  # (B, 128)
        g_transformed = g(trunk(patches))  # (9B, 256) -> (B, 128)
        value = loss(f_image, g_transformed, batch["index"])  # Eq. 5
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        loss.update(batch["index"], f_image)  # the memory bank follows f(v_I)
    print(epoch, value.item())
torch.save(trunk.state_dict(), "trunk.pth")
