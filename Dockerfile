# warmstart on a processor: docker build -t warmstart .
# A run, as you, so that it may write to your folder: docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/work" warmstart quickstart --out runs/quickstart
# A server: docker run --rm -p 8000:8000 -v "$PWD:/work" -e WARMSTART_TOKEN=… warmstart serve runs/topics --host 0.0.0.0
FROM python:3.13-slim AS build
WORKDIR /source
# torch first: --build-arg TORCH_OPTIONS='--index-url ADDRESS' names an index of builds without CUDA, which saves gigabytes
ARG TORCH_OPTIONS=""
RUN python -m venv /opt/warmstart \
 && /opt/warmstart/bin/pip install --no-cache-dir $TORCH_OPTIONS torch==2.13.0
COPY pyproject.toml constraints.txt README.md LICENSE MANIFEST.in ./
COPY src ./src
RUN /opt/warmstart/bin/pip install --no-cache-dir --constraint constraints.txt '.[app,onnx,minilm]'

FROM python:3.13-slim
RUN useradd --create-home --uid 10001 warmstart
COPY --from=build /opt/warmstart /opt/warmstart
ENV PATH=/opt/warmstart/bin:$PATH PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 HOME=/tmp
USER warmstart
WORKDIR /work
EXPOSE 8000
ENTRYPOINT ["warmstart"]
CMD ["--help"]
