"""Make a run fail as the environment says; put this folder on ``PYTHONPATH``.

``FAULT_IN_SAVE=N``: the N-th ``torch.save`` writes half its bytes, then the process is killed.
``FAULT_IN_STEP=N:SIGNAL``: the process sends itself the signal in the N-th optimizer step;
``N:SIGNAL:launcher``: rank 0 sends it to the launcher; ``N:SIGNAL:rank 0``: rank 0 sends it to
itself; ``N:NAN``: the step leaves NaN in a weight.
"""

import io
import os
import signal

if "FAULT_IN_SAVE" in os.environ:
    import torch

    original_save = torch.save
    saves = [int(os.environ["FAULT_IN_SAVE"])]

    def save(content, file, *args, **kwargs):
        saves[0] -= 1
        if saves[0]:
            return original_save(content, file, *args, **kwargs)
        whole = io.BytesIO()
        original_save(content, whole)
        file.write(whole.getvalue()[: whole.tell() // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    torch.save = save

if "FAULT_IN_STEP" in os.environ:
    import torch

    original_step = torch.optim.SGD.step
    number, name, *receiver = os.environ["FAULT_IN_STEP"].split(":")
    steps = [int(number)]

    def step(self, *args, **kwargs):
        steps[0] -= 1
        result = original_step(self, *args, **kwargs)
        if steps[0] == 0 and name == "NAN":
            weight = self.param_groups[0]["params"][0].data
            weight[(0,) * weight.dim()] = float("nan")
        elif steps[0] == 0 and not (receiver and os.environ["RANK"] != "0"):
            is_launcher = receiver == ["launcher"]
            os.kill(os.getppid() if is_launcher else os.getpid(), getattr(signal, name))
        return result

    torch.optim.SGD.step = step
