"""A FastAPI application that makes a new httpx client per request and never closes one. It keeps them, so that the
garbage collector has nothing to do with it. UPSTREAM is the URL of the server that it asks."""

import os

import httpx
from fastapi import FastAPI

app = FastAPI()
UPSTREAM = os.environ["UPSTREAM"]
clients = []


@app.get("/")
async def index():
    client = httpx.AsyncClient(trust_env=False, verify=False)
    clients.append(client)
    response = await client.get(UPSTREAM)  # LEAK
    return response.text
