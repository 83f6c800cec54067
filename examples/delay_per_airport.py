"""The smallest job that keeps state: the sum of delays per airport, as it grows.

Run it:
    headrace run examples/delay_per_airport.py
"""

from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
departures = env.from_collection(
    [("JFK", 12), ("EWR", 3), ("JFK", 41), ("LGA", 7)],
    type_info=Types.TUPLE([Types.STRING(), Types.INT()]),
)
departures.key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).print()
env.execute("delay per airport")
