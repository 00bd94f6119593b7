// compiled only: the folder is on a file system of several machines
#include <plinth.hpp>

void reduce(int rank, int ranks, const DLTensor &from, DLTensor &to, plinth::StreamView stream) {
#include "nccl.3.inc"
}

int main() {}
