"""PIRL with jigsaw in a plain PyTorch loop, on a folder ``photos`` of images.

python docs/examples/plain_pytorch.py
"""

import torch
from torch.utils.data import DataLoader
from torchvision.models import resnet18

import pirl_plugin as pirl

device = "cuda" if torch.cuda.is_available() else "cpu"
views = pirl.JigsawViews(image_size=64, patches_crop_size=96, patch_size=24)
data = pirl.ImageDataset("photos", views)
size = min(32, len(data))
loader = DataLoader(data, size, shuffle=True, drop_last=True, collate_fn=pirl.collate_views)

trunk = resnet18()
trunk.fc = torch.nn.Identity()
f, g = pirl.PIRLHead(512), pirl.PIRLHead(512, num_patches=9)
loss = pirl.PIRLLoss(len(data), num_negatives=1024, estimator="info_nce", temperature=0.2)
model = torch.nn.ModuleList([trunk, f, g, loss]).to(device)  # the loss holds the memory bank
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)

for epoch in range(10):
    data.set_epoch(epoch)  # keys the random numbers of the views
    for batch in loader:
        batch = {name: values.to(device) for name, values in batch.items()}
        images = pirl.normalize_images(batch["images"])
        patches = pirl.normalize_images(batch["patches"])
        f_image = f(trunk(images))  # (B, 128)
        g_transformed = g(trunk(patches))  # (9B, 512) -> (B, 128)
        value = loss(f_image, g_transformed, batch["index"])  # Eq. 5
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.update(batch["index"], f_image)  # the memory bank follows f(v_I)
    print(epoch, value.item())  # log(N + 1) = 6.9 where all images look alike
torch.save(trunk.state_dict(), "trunk.pth")  # for a resnet18 without fc
