"""How good is the exchange of batches between TaskManagers, and what does each part of it cost?

    python -m benchmarks.network [--sections matrix,disk,…] [--channels 1,16] [--rows 16,200] [--timeouts 0,-1]
    python -m benchmarks.network.report

Start reading at `sections.py`: what is measured, one file per question. `worker.py` is the consuming process,
`endpoints.py` what both processes share, `report.py` makes a page with pictures of what was kept.
"""
