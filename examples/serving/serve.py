"""The service: a page for people, and POST /sets for programs."""

import io
import os
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse
from identifier import Identifier, read

HERE = Path(__file__).parent
MOST_BYTES = 20 * 2**20

app = FastAPI(title="Species identifier")
identifier = Identifier(os.environ.get("MODEL", str(HERE / "flowers.onnx")))


@app.get("/", response_class=FileResponse)
def page():
    """Return the page."""
    return HERE / "index.html"


@app.post("/sets")
async def sets(request: Request):
    """Return the species that the image in the body may show, the likeliest first."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise HTTPException(413, f"the image is larger than {MOST_BYTES >> 20} MB")
    try:
        image = read(io.BytesIO(content))
    except ValueError as error:
        raise HTTPException(415, str(error)) from error
    (answer,) = identifier.sets([image])
    return {"species": [{"name": name, "probability": p} for name, p in answer]}
