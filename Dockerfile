# One image for the web half and the worker half; compose.yaml chooses by the command. The first stage builds the wheels
# and the page; its Node.js is not part of the image. All installed packages are pinned with their hashes.
FROM python:3.13-slim AS build

WORKDIR /src
COPY requirements requirements
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt -r requirements/node.txt
COPY README.md ./
COPY protocol protocol
COPY client client
COPY server server
COPY web web
RUN for package in protocol client server; do (cd $package && python -m hatchling build --target wheel --directory /wheels) || exit 1; done

FROM python:3.13-slim

COPY requirements/serve.txt /tmp/
RUN pip install --no-cache-dir --require-hashes -r /tmp/serve.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl && useradd --create-home threadcast && install -d -o threadcast /app /data

USER threadcast
WORKDIR /app
# The directory of files that tools write, and of a private store.
ENV THREADCAST_STORE__DATA_DIR=/data
EXPOSE 8000
ENTRYPOINT ["threadcast"]
CMD ["serve"]
