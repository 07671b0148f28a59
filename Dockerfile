# One image for both halves; compose.yaml says which. Only what the wheel needs is copied; the page is built on the way, by
# a Node.js that is gone afterwards.
FROM python:3.13-slim

WORKDIR /src
COPY pyproject.toml README.md hatch_build.py ./
COPY protocol protocol
COPY server server
COPY threadcast threadcast
COPY web web
COPY tests/conformance tests/conformance
RUN pip install --no-cache-dir . && useradd --create-home threadcast && install -d -o threadcast /app /data

USER threadcast
WORKDIR /app
# Files that tools write; a private store would lie here too.
ENV THREADCAST_STORE__DATA_DIR=/data
EXPOSE 8000
ENTRYPOINT ["threadcast"]
CMD ["serve"]
