"""BuddyAllocator: which pages of a range are free, in blocks of a power of two. Pure arithmetic, no memory.

A block of size 2^k begins at a multiple of 2^k; its buddy is the other half of the block of twice the size, with which
it is united as soon as both are free. Taking and freeing costs a few dictionary steps, and what is left over never
falls into pieces smaller than those in use. Source: Knowlton 1965; Knuth, The Art of Computer Programming, 2.5.
"""

from typing import Final


class BuddyAllocator:
    """Pages 0 … `page_count` - 1, given out in aligned blocks of 2^`order` pages, up to 2^`order_max`."""

    def __init__(self, page_count: int, order_max: int) -> None:
        self.page_count: Final = page_count
        self.order_max: Final = order_max
        self.free_page_count = page_count
        # Insertion-ordered: the block freed last is taken first, while it is in the processor's cache.
        self._free: list[dict[int, None]] = [{} for _ in range(order_max + 1)]
        start = 0
        for order in range(order_max, -1, -1):
            while page_count - start >= 1 << order:
                self._free[order][start] = None
                start += 1 << order

    def take(self, order: int) -> int | None:
        """Return the first page of a free block of 2^`order` pages, or None where there is none."""
        found = next((k for k in range(order, self.order_max + 1) if self._free[k]), None)
        if found is None:
            return None
        page, _ = self._free[found].popitem()
        for k in range(found - 1, order - 1, -1):
            self._free[k][page + (1 << k)] = None
        self.free_page_count -= 1 << order
        return page

    def give_back(self, page: int, order: int) -> None:
        """Free the block that `take(order)` returned as `page`."""
        assert page not in self._free[order], f"page {page} was given back twice"
        self.free_page_count += 1 << order
        while order < self.order_max:
            buddy = page ^ (1 << order)
            if buddy not in self._free[order]:
                break
            del self._free[order][buddy]
            page = min(page, buddy)
            order += 1
        self._free[order][page] = None
