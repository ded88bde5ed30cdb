"""Threads of gloo's, played by threads of ours: what is waited for, and what is left alone."""

from __future__ import annotations

import ctypes
import threading
import time

from petctl.elastic.groups.gloo import Waits, let_go

PR_SET_NAME = 15


def gloos_thread(busy: threading.Event, over: threading.Event) -> threading.Thread:
    def work() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_gloo_runloop")
        started.set()
        while not busy.is_set():
            pass
        over.wait()

    started = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    return thread


def test_a_busy_thread_is_waited_for_and_a_resting_one_is_not() -> None:
    busy, over = threading.Event(), threading.Event()
    thread = gloos_thread(busy, over)
    timer = threading.Timer(0.2, busy.set)
    timer.start()
    try:
        let_go()
        assert busy.is_set()
        begun = time.monotonic()
        let_go()
        assert time.monotonic() - begun < 0.9, "it did not wait until its patience was over"
    finally:
        busy.set()
        over.set()
        timer.join()
        thread.join()


def test_without_torch_nobody_is_released() -> None:
    assert Waits().release() == 0
