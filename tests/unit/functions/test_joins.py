"""TaggedUnion: a record with the stream that it came from."""

import pickle

from headrace.functions.joins import TaggedUnion


def test_a_tagged_record_knows_its_stream() -> None:
    one, two = TaggedUnion.one("a"), TaggedUnion.two("a")
    assert (one.is_one(), one.is_two(), one.get_one(), one.get_two()) == (True, False, "a", None)
    assert (two.is_one(), two.is_two(), two.get_one(), two.get_two()) == (False, True, None, "a")
    assert repr(one) == "TaggedUnion.one('a')" and repr(two) == "TaggedUnion.two('a')"


def test_tagged_records_are_equal_by_stream_and_value_and_travel() -> None:
    assert TaggedUnion.one([1]) == pickle.loads(pickle.dumps(TaggedUnion.one([1])))
    assert TaggedUnion.one(1) != TaggedUnion.two(1)
    assert TaggedUnion.one(1) != TaggedUnion.one(2)
