#!/usr/bin/env bash
# Compiles kernels/*.cu to PTX: tools/kernels.sh NVCC FOLDER.
#
# compute_75 is the oldest architecture that CUDA 13 supports; drivers translate its PTX for every newer GPU. Kernels that
# need instructions of a newer one are in files whose names end in _half, which are compiled for compute_80.
#
# The compiler's comments and indentation, an unused declaration in each call and a part of the names of labels are removed,
# because the text is embedded in the library.
set -euo pipefail

nvcc=$1
folder=$2
cd "$(dirname "$0")/.."

for source in kernels/*.cu; do
	name=$(basename "$source" .cu)
	architecture=compute_75
	[[ $name == *_half ]] && architecture=compute_80
	"$nvcc" -ptx -arch=$architecture -std=c++17 "$source" -o "$folder/$name.ptx.tmp"
	# shellcheck disable=SC2016 # the dollar signs are of labels
	sed -E -e 's/[ \t]*\/\/.*$//' -e 's/^[ \t]+//' -e 's/[ \t]+/ /g' -e '/^$/d' -e '/^\.reg \.b32 temp_param_reg;$/d' \
		-e 's/\$L__BB/$L/g' "$folder/$name.ptx.tmp" >"$folder/$name.ptx"
	rm "$folder/$name.ptx.tmp"
done
