"""The engine under the sync and the asyncio clients: a pure core and a small IO part.

Pure, driven by calls and a clock that is passed in: `futures`, `accumulator`, `sealing`,
`partition`, `leaders`, `partitioners`, `backoff`, `fetching`. IO, on one event loop:
`runtime`, `cluster`, `stream`, `sender`, `fetcher`.
"""
