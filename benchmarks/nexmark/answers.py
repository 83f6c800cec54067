"""What DuckDB makes of the same files, by query, and how the columns of our results are written beside it.

`open_events` needs an interpreter that has DuckDB. Times are epoch milliseconds.
"""

from pathlib import Path
from typing import Any, Final

_WINNING = """
    SELECT a.id, category, seller, expires, max(price) AS final
    FROM auction AS a JOIN bid AS b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND expires
    GROUP BY ALL
"""
_BY_PRICE = """
    {0}, {0} FILTER (WHERE price < 10000), {0} FILTER (WHERE price >= 10000 AND price < 1000000),
    {0} FILTER (WHERE price >= 1000000)
"""
_BIDS, _BIDDERS, _AUCTIONS = (
    _BY_PRICE.format(one)
    for one in ("count(*)", "count(DISTINCT bidder)", "count(DISTINCT auction)")
)
_DAY = "date_time // 86400000 * 86400000"
_OUR_WINDOW = "epoch_ms(window_start), epoch_ms(window_end)"
_OUR_COUNTS = "* EXCLUDE (window_start, window_end)"

# By query: what DuckDB computes, and how the columns of our results are written beside it.
ANSWERS: Final[dict[str, tuple[str, str]]] = {
    "q0": ("SELECT auction, bidder, price, date_time FROM bid", "*"),
    "q1": (
        "SELECT auction, bidder, CAST(price AS DOUBLE) * CAST(0.908 AS DOUBLE) AS price, date_time FROM bid",
        "*",
    ),
    "q3": (
        """
        SELECT name, city, state, auction.id FROM auction JOIN person ON seller = person.id
        WHERE category = 10 AND state IN ('or', 'id', 'ca')
        """,
        "*",
    ),
    "q8": (
        """
        SELECT DISTINCT person.id, name, person.date_time // 10000 * 10000
        FROM person JOIN auction ON seller = person.id
            AND auction.date_time // 10000 = person.date_time // 10000
        """,
        "id, name, epoch_ms(window_start)",
    ),
    "q11": (
        """
        WITH marked AS (
            SELECT bidder, date_time,
                CASE WHEN date_time - lag(date_time) OVER later <= 10000 THEN 0 ELSE 1 END AS begins
            FROM bid WINDOW later AS (PARTITION BY bidder ORDER BY date_time)
        ), numbered AS (
            SELECT *, sum(begins) OVER (
                PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING
            ) AS session
            FROM marked
        )
        SELECT bidder, min(date_time), max(date_time) + 10000, count(*)
        FROM numbered GROUP BY bidder, session
        """,
        "bidder, epoch_ms(window_start), epoch_ms(window_end), bids",
    ),
    "q20": (
        """
        SELECT auction, bidder, price, bid.date_time, id, seller, category, expires
        FROM bid JOIN auction ON auction = id WHERE category = 10
        """,
        "*",
    ),
    "q4": (f"SELECT category, avg(final) FROM ({_WINNING}) GROUP BY category", "*"),
    "q6": (
        f"""
        WITH last AS (
            SELECT seller, final FROM ({_WINNING})
            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10
        )
        SELECT seller, avg(final) FROM last GROUP BY seller
        """,
        "*",
    ),
    "q7max": (
        """
        SELECT date_time // 10000 * 10000 AS begin, begin + 10000, max(price) FROM bid GROUP BY begin
        """,
        f"{_OUR_WINDOW}, price",
    ),
    "q12": (
        """
        SELECT bidder, date_time // 10000 * 10000 AS begin, begin + 10000, count(*) FROM bid
        GROUP BY bidder, begin
        """,
        f"bidder, {_OUR_WINDOW}, bids",
    ),
    "q15": (
        f"""
        SELECT {_DAY} AS begin, begin + 86400000, {_BIDS}, {_BIDDERS}, {_AUCTIONS} FROM bid GROUP BY begin
        """,
        f"{_OUR_WINDOW}, {_OUR_COUNTS}",
    ),
    "q16": (
        f"""
        SELECT {_DAY} AS begin, begin + 86400000, channel, max(date_time % 86400000 // 60000),
            {_BIDS}, {_BIDDERS}, {_AUCTIONS}
        FROM bid GROUP BY begin, channel
        """,
        f"{_OUR_WINDOW}, {_OUR_COUNTS}",
    ),
    "q17": (
        f"""
        SELECT {_DAY} AS begin, begin + 86400000, auction, {_BIDS}, min(price), max(price), avg(price),
            CAST(sum(price) AS BIGINT)
        FROM bid GROUP BY begin, auction
        """,
        f"{_OUR_WINDOW}, {_OUR_COUNTS}",
    ),
    "q18": (
        """
        SELECT auction, bidder, price, channel, url, date_time, extra FROM bid
        QUALIFY row_number() OVER (
            PARTITION BY bidder, auction ORDER BY date_time DESC, price DESC, url DESC, extra DESC
        ) = 1
        """,
        "*",
    ),
    "q19": (
        """
        SELECT auction, bidder, price, channel, url, date_time, extra FROM bid
        QUALIFY row_number() OVER (
            PARTITION BY auction ORDER BY price DESC, date_time DESC, bidder DESC
        ) <= 10
        """,
        "*",
    ),
    "q5": (
        """
        WITH counts AS (
            SELECT auction, begin, count(*) AS bids
            FROM (
                SELECT auction, date_time // 2000 * 2000 - 2000 * pane AS begin
                FROM bid, range(5) AS panes(pane)
            )
            GROUP BY ALL
        )
        SELECT auction, begin, begin + 10000, bids FROM counts
        QUALIFY bids = max(bids) OVER (PARTITION BY begin)
        """,
        "auction, epoch_ms(window_start), epoch_ms(window_end), bids",
    ),
    "q7": (
        """
        SELECT auction, bidder, price, date_time FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY date_time // 10000)
        """,
        "*",
    ),
    "q2": ("SELECT auction, price FROM bid WHERE auction % 123 = 0", "*"),
}


def open_events(events: Path) -> Any:
    """Return a connection with the files of each kind that was made as a view."""
    import duckdb  # pyright: ignore[reportMissingImports]  # in an environment of its own

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 2")
    for kind in sorted(path.name for path in events.iterdir() if path.is_dir()):
        connection.execute(
            f"CREATE VIEW {kind} AS SELECT * FROM read_parquet('{events}/{kind}/*.parquet')"
        )
    return connection
