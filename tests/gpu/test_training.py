"""PIRL on photos of a folder, with a loader: trains on the device, is killed, and goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

TRAIN = """
import json, sys, torch
from pathlib import Path
from pirl_plugin import ImageDataset, JigsawViews, PIRLHead, PIRLLoss
from pirl_plugin import collate_views, normalize_images

device, photos, out, last = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
torch.manual_seed(0)
data = ImageDataset(photos, JigsawViews(image_size=32, patches_crop_size=48, patch_size=16))
trunk = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 5, stride=4), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
)
model = torch.nn.ModuleList([trunk, PIRLHead(32), PIRLHead(32, num_patches=9)]).to(device)
loss = PIRLLoss(num_train_samples=len(data), num_negatives=256, estimator="info_nce").to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
parts = {"model": model, "loss": loss, "optimizer": optimizer}
begin, values, file = 0, [], out / "state.pt"
if file.exists():
    state = torch.load(file, map_location="cpu", weights_only=True)
    begin, values = state.pop("epoch"), state.pop("values")
    for name, part in parts.items():
        part.load_state_dict(state[name])
trunk, f, g = model
for epoch in range(begin, last):
    data.set_epoch(epoch)
    order = torch.Generator().manual_seed(epoch)
    loader = torch.utils.data.DataLoader(
        data, 8, shuffle=True, drop_last=True, collate_fn=collate_views, generator=order,
        pin_memory=device == "cuda", num_workers=0,
    )
    for batch in loader:
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        images, patches = normalize_images(batch["images"]), normalize_images(batch["patches"])
        f_image, g_patches = f(trunk(images)), g(trunk(patches))
        value = loss([g_patches, f_image], batch["label"])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.update(batch["label"], f_image)
    values.append(value.item())
    state = {name: part.state_dict() for name, part in parts.items()}
    torch.save({**state, "epoch": epoch + 1, "values": values}, out / "new.pt")
    (out / "new.pt").rename(file)
    print("EPOCH", epoch, flush=True)
print("ENDED", json.dumps(values + [loss.bank.rows.double().sum().item(), loss.step]))
"""


@pytest.fixture
def device(slow_device):
    return slow_device


@pytest.fixture
def photos(tmp_path, make_image):
    (tmp_path / "photos").mkdir()
    for number in range(24):
        make_image(tmp_path / "photos" / f"{number}.jpg", number, size=64)
    return tmp_path / "photos"


def start(device, photos, out, epochs):
    out.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, device, str(photos), str(out), str(epochs)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
    )  # fmt: skip


def result(process):
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err[-2000:]
    return json.loads(out.rpartition("ENDED ")[2])


def test_training__is_killed_and_goes_on_to_the_same_result(device, photos, tmp_path):
    epochs = 6 if device == "cuda" else 3
    whole = start(device, photos, tmp_path / "whole", epochs)
    first = start(device, photos, tmp_path / "cut", 1000)
    for line in first.stdout:
        if line.startswith("EPOCH 1"):
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    state = torch.load(tmp_path / "cut" / "state.pt", weights_only=True, map_location="cpu")
    expected = result(whole)
    assert expected[-1] == 3 * epochs  # 24 photos in batches of 8
    assert all(0 < value < 10 for value in expected[:-2])
    if state["epoch"] >= epochs:  # it was quick: the run that it is compared with is then longer
        epochs = state["epoch"] + 1
        expected = result(start(device, photos, tmp_path / "whole", epochs))
    assert result(start(device, photos, tmp_path / "cut", epochs)) == expected
