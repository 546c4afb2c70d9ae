// Prints how many thread block clusters run at the same time: a JSON object, {"8 x 128": 16, ...}.
// Blocks of a persistent kernel wait for each other within a cluster only, but a cluster that does not fit waits for
// others to end. The shared memory is what keeps a second block off a multiprocessor, as the registers will.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void kernel(float* x) {
    extern __shared__ float shared[];
    shared[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

int main() {
    const int bytes = 160 * 1024;  // of 227 KiB a multiprocessor
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    printf("{");
    const char* comma = "";
    for (int blocks = 4; blocks <= 16 && error == cudaSuccess; blocks *= 2)
        for (int threads = 128; threads <= 256 && error == cudaSuccess; threads *= 2) {
            cudaLaunchAttribute cluster = {};
            cluster.id = cudaLaunchAttributeClusterDimension;
            cluster.val.clusterDim.x = blocks;
            cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
            cudaLaunchConfig_t launch = {};
            launch.gridDim = dim3(blocks * 64);
            launch.blockDim = dim3(threads);
            launch.dynamicSmemBytes = bytes;
            launch.attrs = &cluster;
            launch.numAttrs = 1;
            int most = 0;
            error = cudaOccupancyMaxActiveClusters(&most, kernel, &launch);
            printf("%s\"%d x %d\": %d", comma, blocks, threads, most);
            comma = ", ";
        }
    printf("}\n");
    if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
