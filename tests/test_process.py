import ctypes
import os

import pytest
import torch

from anisotropy import process


def test_idle_threads_sleep_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    process.share_cores()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    process.share_cores()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert process.keep_freed_memory() is False


def test_tasks_share_the_cores_and_keep_their_order():
    from threadpoolctl import threadpool_info

    def blas():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, threads = blas(), torch.get_num_threads()
    assert before
    seen = process.side_by_side(lambda task: (task, torch.get_num_threads(), max(blas())), range(6), workers=2)
    assert [task for task, _, _ in seen] == list(range(6))
    share = max(1, threads // min(2, os.cpu_count() or 1))
    assert {count for _, count, _ in seen} == {share}
    assert max(count for _, _, count in seen) <= share
    assert (blas(), torch.get_num_threads()) == (before, threads)


def test_an_error_in_a_task_reaches_the_caller_and_threads_are_as_before():
    threads = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        process.side_by_side(lambda task: 1 / task, [1, 0, 2])
    assert torch.get_num_threads() == threads
