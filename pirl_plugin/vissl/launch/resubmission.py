"""A requeued job whose time-outs are counted only while it makes no progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from submitit.core import utils

if TYPE_CHECKING:
    from collections.abc import Callable

# submitit's default, over the whole life of a job; the host does not change it.
TIMEOUTS = 3


class DelayedSubmission(utils.DelayedSubmission):
    """What submitit loads again: it asks for a class of this very name.

    Args:
        function: of the job.
        progressed: whether the run has saved something since the job began.
    """

    def __init__(self, function: Callable[[], object], progressed: bool) -> None:
        super().__init__(function)
        self.progressed = progressed

    def set_timeout(self, timeout_min: int, max_num_timeout: int) -> None:
        """Take submitit's count of time-outs that are left, or all of them after progress.

        Args:
            timeout_min: of the job.
            max_num_timeout: time-outs that are left.
        """
        left = max(max_num_timeout, TIMEOUTS) if self.progressed else max_num_timeout
        super().set_timeout(timeout_min, left)


Resubmission = DelayedSubmission
