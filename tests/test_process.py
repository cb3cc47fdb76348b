import ctypes
import os

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


def test_products_run_in_one_thread_and_as_before_afterwards():
    import numpy as np  # noqa: F401  (loads the library whose threads are counted)
    from threadpoolctl import threadpool_info

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    assert before
    with process.one_blas_thread():
        assert set(threads()) == {1}
    assert threads() == before
