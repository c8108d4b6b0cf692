"""One suite of the API that every face of the queue manager passes: in-process, local client, asyncio."""
