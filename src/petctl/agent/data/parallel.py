"""Some work for many items, a few at a time: for transfers, which mostly wait for each other end."""

from __future__ import annotations

import threading
from typing import Callable, Iterable, List, Tuple, TypeVar

from petctl.errors import GivenUp

Item = TypeVar("Item")


def together(
    work: Callable[[Item], None], items: Iterable[Item], count: int, given_up: Callable[[], bool] = lambda: False
) -> None:
    """Does the work for all items, some at a time; the first error ends it and is raised."""
    waiting, lock = iter(items), threading.Lock()
    errors: List[BaseException] = []

    def take() -> Tuple[bool, List[Item]]:
        with lock:
            if errors or given_up():
                return False, []
            for item in waiting:
                return True, [item]
            return False, []

    def labour() -> None:
        while True:
            more, items_ = take()
            if not more:
                return
            try:
                work(items_[0])
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=labour, name="petctl-transfer", daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    if given_up():
        raise GivenUp
