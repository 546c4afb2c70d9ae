# A checkout with all that trains and reports:
#
#   docker build -t timescales .                                    torch as the index of packages has it, with CUDA
#   docker build -t timescales --build-arg TORCH_INDEX=ADDRESS .    torch of another index: of its CPU builds, say
#   docker run --rm -v "$PWD/runs:/timescales/runs" timescales train.py model=plstm task=copy device=cpu logger=csv
#   docker run --rm --gpus all ...                                  on a GPU
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# g++ compiles the kernels of a CPU; records name the commit that git knows.
RUN apt-get update && apt-get install -y --no-install-recommends g++ git make && rm -rf /var/lib/apt/lists/*

WORKDIR /timescales
COPY . .
ARG TORCH_INDEX=
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt -e '.[train]'

ENTRYPOINT ["python"]
CMD ["train.py", "--help"]
