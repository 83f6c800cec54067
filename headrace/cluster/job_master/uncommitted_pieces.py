"""UncommittedPieces: collected records that no published checkpoint covers yet, and which a restart takes back. Pure.

    sent by a subtask   piece piece MARK 3 piece MARK 4 piece
    3 is published      ^^^^^^^^^^^ goes to the client
    restart from 3                         ^^^^^^^^^^^^^^^^^^ is forgotten: it comes again

Source: Flink CollectSinkOperatorCoordinator, CheckpointedCollectResultBuffer.
"""

from headrace.gateways.job_master import CollectedPiece


class UncommittedPieces:
    """By subtask, pieces and the marks between them, in order."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[CollectedPiece | int]] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all pieces that wait."""
        return self._size_bytes

    def add(self, subtask_index: int, element: CollectedPiece | int) -> None:
        """A piece, or the mark of a checkpoint, came from a subtask."""
        self._waiting.setdefault(subtask_index, []).append(element)
        if isinstance(element, CollectedPiece):
            self._size_bytes += len(element.content)

    def published(self, checkpoint_id: int) -> list[CollectedPiece]:
        """Take out what a published checkpoint covers, of all subtasks."""
        taken: list[CollectedPiece] = []
        for subtask_index in sorted(self._waiting):
            taken += self._take(subtask_index, checkpoint_id)
        return taken

    def restored(self, subtask_index: int, checkpoint_id: int | None) -> list[CollectedPiece]:
        """A subtask starts again from a checkpoint: take out what that covers and forget the rest."""
        taken = [] if checkpoint_id is None else self._take(subtask_index, checkpoint_id)
        self._pieces_of(self._waiting.pop(subtask_index, []))
        return taken

    def all_restored(self, checkpoint_id: int | None) -> list[CollectedPiece]:
        """Every subtask starts again."""
        taken: list[CollectedPiece] = []
        for subtask_index in sorted(self._waiting):
            taken += self.restored(subtask_index, checkpoint_id)
        return taken

    def take_all(self) -> list[CollectedPiece]:
        """The job has finished: nothing will be taken back."""
        taken: list[CollectedPiece] = []
        for elements in self._waiting.values():
            taken += self._pieces_of(elements)
        self._waiting.clear()
        return taken

    def _take(self, subtask_index: int, checkpoint_id: int) -> list[CollectedPiece]:
        elements = self._waiting.get(subtask_index, [])
        end = 0
        for place, element in enumerate(elements):
            if isinstance(element, int) and element <= checkpoint_id:
                end = place + 1
        self._waiting[subtask_index] = elements[end:]
        return self._pieces_of(elements[:end])

    def _pieces_of(self, elements: list[CollectedPiece | int]) -> list[CollectedPiece]:
        """The pieces among elements that wait no more."""
        pieces = [one for one in elements if isinstance(one, CollectedPiece)]
        self._size_bytes -= sum(len(piece.content) for piece in pieces)
        return pieces
