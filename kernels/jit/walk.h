// How a kernel of the jiterator walks through its tensors. What differs from kernel to kernel is a struct K, which is made for
// each function and each list of types and stands behind the user's own text:
//   K::ARRAYS, K::OUTPUTS   how many tensors there are, the outputs first
//   K::size(array)          the bytes of an element; K::alignment(array), what its address is a multiple of
//   K::VECTOR               how many neighbouring elements are one access of memory
//   K::ROUNDS               how many such a thread makes
//   K::RANK                 0 where all elements of all tensors lie side by side in one order, else the most dimensions
//   K::scalars              the named scalars
//   K::group<N>             N elements of each tensor: read, apply, write
// Launches are of THREADS threads a block. The host device runs the same text, one thread after the other.
namespace plinth_jit {
constexpr u32 THREADS = 128;

// Neighbouring elements that are loaded and stored at once, by 16 bytes where there are as many.
template <typename S, u32 N>
struct alignas(sizeof(S) * N < 16 ? sizeof(S) * N : 16) pack {
  S at[N];
};
template <typename S>
struct pack<S, 1> {
  S at[1];
};

template <typename S, u32 N>
PLINTH_INLINE pack<S, N> fetch(char *address) {
  return *reinterpret_cast<const pack<S, N> *>(address);
}

template <typename S, u32 N>
PLINTH_INLINE void put(char *address, const pack<S, N> &elements) {
  *reinterpret_cast<pack<S, N> *>(address) = elements;
}

// An input of which all elements of a row are one.
template <typename S, u32 N>
PLINTH_INLINE pack<S, N> fetch_or_repeat(char *address, bool repeat) {
  if (N > 1 && repeat) {
    const S one = *reinterpret_cast<const S *>(address);
    pack<S, N> all;
    PLINTH_UNROLL
    for (u32 i = 0; i < N; i++) all.at[i] = one;
    return all;
  }
  return fetch<S, N>(address);
}

// Brings an input to the type that all inputs have in common, and to what the function takes.
template <typename C, typename S>
struct promoted {
  PLINTH_INLINE static typename compute<C>::type of(S value) {
    C common;
    write(common, static_cast<typename compute<C>::type>(read(value)));
    return read(common);
  }
};
template <typename C>
struct promoted<C, C> {
  PLINTH_INLINE static typename compute<C>::type of(C value) { return read(value); }
};

// What a function returned, as an output has it.
template <typename C, typename V>
PLINTH_INLINE C stored(V value) {
  C place;
  write(place, static_cast<typename compute<C>::type>(value));
  return place;
}

template <typename K, u32 R>
struct layout {
  u32 numel, rank, repeats, padding;
  char *data[K::ARRAYS];
  u32 sizes[R], magics[R], shifts[R + R % 2];
  i64 strides[R][K::ARRAYS];

  PLINTH_INLINE void place(u32 index, char *(&at)[K::ARRAYS]) const {
    PLINTH_UNROLL
    for (u32 array = 0; array < K::ARRAYS; array++) at[array] = data[array];
    PLINTH_UNROLL
    for (u32 dimension = 0; dimension < R; dimension++) {
      if (dimension >= rank) break;
      u32 step = index;
      if (dimension + 1 < rank) {
        const u32 quotient = (__umulhi(index, magics[dimension]) + index) >> shifts[dimension];
        step = index - quotient * sizes[dimension];
        index = quotient;
      }
      PLINTH_UNROLL
      for (u32 array = 0; array < K::ARRAYS; array++) at[array] += (i64)step * strides[dimension][array];
    }
  }
};
template <typename K>
struct layout<K, 0> {
  u32 numel, rank, repeats, padding;
  char *data[K::ARRAYS];
};

template <typename K>
struct parameters {
  layout<K, K::RANK> tensors;
  typename K::scalars values;
};

#ifdef PLINTH_HOST
typedef u32 (*check)(void *launch, u64 address, u64 bytes, u32 written);

// Whether the launch may use all that its threads will: 0, or an error's code.
template <typename K, u32 R>
u32 reachable(const layout<K, R> &tensors, check usable, void *launch) {
  for (u32 array = 0; array < K::ARRAYS; array++) {
    i64 low = 0, high = 0;
    for (u32 dimension = 0; dimension < tensors.rank; dimension++) {
      const i64 reach = (i64)(tensors.sizes[dimension] - 1) * tensors.strides[dimension][array];
      (reach < 0 ? low : high) += reach;
    }
    const bool repeats = array >= K::OUTPUTS && (tensors.repeats >> (array - K::OUTPUTS) & 1);
    const u64 element = K::size(array), bytes = repeats ? element : element * K::VECTOR;
    const u64 address = (u64)tensors.data[array];
    if (address % (repeats || K::VECTOR == 1 ? K::alignment(array) : bytes < 16 ? bytes : 16) != 0) return 716;
    const u32 code = usable(launch, address + (u64)low, (u64)(high - low) + bytes, array < K::OUTPUTS);
    if (code != 0) return code;
  }
  return 0;
}
template <typename K>
u32 reachable(const layout<K, 0> &tensors, check usable, void *launch) {
  for (u32 array = 0; array < K::ARRAYS; array++) {
    const u64 element = K::size(array), bytes = element * K::VECTOR;
    if ((u64)tensors.data[array] % (bytes < 16 ? bytes : 16) != 0) return 716;
    const u32 code = usable(launch, (u64)tensors.data[array], element * tensors.numel, array < K::OUTPUTS);
    if (code != 0) return code;
  }
  return 0;
}
#endif

// Elements side by side: a block has K::ROUNDS stretches of THREADS vectors.
template <typename K>
PLINTH_INLINE void thread(const layout<K, 0> &tensors, const typename K::scalars &values, u32 block, u32 lane) {
  const u32 first = (block * (THREADS * K::ROUNDS) + lane) * K::VECTOR;
  if ((block + 1) * (THREADS * K::ROUNDS * K::VECTOR) <= tensors.numel) {
    typename K::template group<K::VECTOR> groups[K::ROUNDS];
    PLINTH_UNROLL
    for (u32 round = 0; round < K::ROUNDS; round++) {
      char *at[K::ARRAYS];
      PLINTH_UNROLL
      for (u32 array = 0; array < K::ARRAYS; array++) {
        at[array] = tensors.data[array] + (u64)(first + round * (THREADS * K::VECTOR)) * K::size(array);
      }
      groups[round].read(at, 0);
    }
    PLINTH_UNROLL
    for (u32 round = 0; round < K::ROUNDS; round++) {
      char *at[K::ARRAYS];
      PLINTH_UNROLL
      for (u32 array = 0; array < K::ARRAYS; array++) {
        at[array] = tensors.data[array] + (u64)(first + round * (THREADS * K::VECTOR)) * K::size(array);
      }
      groups[round].apply(values);
      groups[round].write(at);
    }
    return;
  }
  PLINTH_ONE_BY_ONE
  for (u32 round = 0; round < K::ROUNDS; round++) {
    u32 element = first + round * (THREADS * K::VECTOR);
    PLINTH_ONE_BY_ONE
    for (u32 i = 0; i < K::VECTOR && element < tensors.numel; i++, element++) {
      char *at[K::ARRAYS];
      PLINTH_UNROLL
      for (u32 array = 0; array < K::ARRAYS; array++) at[array] = tensors.data[array] + (u64)element * K::size(array);
      typename K::template group<1> one;
      one.read(at, 0);
      one.apply(values);
      one.write(at);
    }
  }
}

// Elements anywhere, by vectors where the fastest dimension allows; `numel` counts vectors.
template <typename K, u32 R>
PLINTH_INLINE void thread(const layout<K, R> &tensors, const typename K::scalars &values, u32 block, u32 lane) {
  const u32 first = block * (THREADS * K::ROUNDS) + lane;
  typename K::template group<K::VECTOR> groups[K::ROUNDS];
  char *at[K::ROUNDS][K::ARRAYS];
  PLINTH_UNROLL
  for (u32 round = 0; round < K::ROUNDS; round++) {
    const u32 index = first + round * THREADS;
    if (index < tensors.numel) {
      tensors.place(index, at[round]);
      groups[round].read(at[round], tensors.repeats);
    }
  }
  PLINTH_UNROLL
  for (u32 round = 0; round < K::ROUNDS; round++) {
    if (first + round * THREADS < tensors.numel) {
      groups[round].apply(values);
      groups[round].write(at[round]);
    }
  }
}
}  // namespace plinth_jit

