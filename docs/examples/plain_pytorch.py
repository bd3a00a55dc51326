"""PIRL with jigsaw in a plain PyTorch loop, on a folder ``photos`` of images.

python docs/examples/plain_pytorch.py
"""

import torch
from torch.utils.data import DataLoader

import pirl_plugin as pirl

views = pirl.JigsawViews(image_size=64, patches_crop_size=96, patch_size=24, image_scale=(0.2, 1.0))
data = pirl.ImageDataset("photos", views)
labels = data.labels()  # from subfolders, if any; used only for evaluation
batch_size = min(32, len(data))
loader = DataLoader(data, batch_size, shuffle=True, drop_last=True, collate_fn=pirl.collate_views)

trunk = pirl.WideResNet(10, width=0.5)  # or a torchvision or timm network, without its fc
model = pirl.PIRL(trunk, data).to("cuda" if torch.cuda.is_available() else "cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
epochs = 40
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))

model.fill_bank(loader)  # start the memory bank from image embeddings
for epoch in range(epochs):
    for batch in loader:
        loss = model(batch)  # Eq. 5: images and their jigsaws against the bank
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        model.update()  # update these images' rows in the bank
    print(epoch, loss.item(), pirl.measure_bank(model.bank.rows, labels))
pirl.save_trunk(trunk, "trunk.torch")  # with the image size, mean and standard deviation
