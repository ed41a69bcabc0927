"""The engine under the sync and the asyncio clients: a pure core and a small IO part.

IO, on one event loop: `runtime` and `cluster` in net/, `sender`, `stream` and `identities` in
produce/, `fetcher`, `catch_up`, `positions` and `groups` in consume/. The rest is driven by
calls and a clock that is passed in.
"""
