// Cooperative groups: grids, blocks, tiles of up to 32 threads, and threads of a warp that are at the same place. Not
// supported, with an error that says so: tiles of more than 32 threads, clusters.
#pragma once
#include <plinth_host/atomic.h>
#include <plinth_host/thread_scope.h>
#include <plinth_host/warp.h>

#include <plinth_host/standard_begin.h>
#include <type_traits>
#include <utility>
#include <plinth_host/standard_end.h>

namespace cooperative_groups {
class thread_group;
class thread_block;
class coalesced_group;
template <unsigned Size, typename Parent = void> class thread_block_tile;
}  // namespace cooperative_groups

namespace plinth_host {
// Reads what groups keep to themselves.
struct GroupAccess {
  template <typename Group> static unsigned mask(const Group &group) { return group.lane_mask(); }
  template <typename Group> static Group with_position(Group group, unsigned rank, unsigned count) {
    group.meta_rank_ = rank;
    group.meta_size_ = count;
    return group;
  }
  static inline cooperative_groups::coalesced_group with_mask(unsigned mask);
};

template <typename Group> constexpr bool is_tile = false;
template <unsigned Size, typename Parent>
constexpr bool is_tile<cooperative_groups::thread_block_tile<Size, Parent>> = true;
template <typename Group>
constexpr bool is_of_one_warp = is_tile<Group> || std::is_same_v<Group, cooperative_groups::coalesced_group>;

template <typename> constexpr bool kNever = false;

// Returns the lane of a mask with a rank, or 32.
static inline unsigned lane_with_rank(unsigned mask, unsigned rank) {
  for (; mask != 0; mask &= mask - 1, rank--) {
    if (rank == 0) return unsigned(__builtin_ctz(mask));
  }
  return kLanes;
}

// Returns the bits of `lanes` at the ranks that their lanes have in `mask`.
static inline unsigned pack_lanes(unsigned mask, unsigned lanes) {
  unsigned packed = 0, rank = 0;
  for (; mask != 0; mask &= mask - 1, rank++) packed |= (lanes >> __builtin_ctz(mask) & 1u) << rank;
  return packed;
}
}  // namespace plinth_host

namespace cooperative_groups {
namespace details {
enum group_kind : unsigned { coalesced_group_id = 1, grid_group_id = 3, thread_block_id = 4 };

template <typename T> using shuffled = std::remove_cv_t<std::remove_reference_t<T>>;

template <plinth_host::Shuffle kind, typename T>
inline T shuffle(const T &value, unsigned mask, unsigned from, plinth_host::Site site) {
  static_assert(sizeof(T) <= 32 && std::is_trivially_copyable<T>::value, "a shuffled value has at most 32 bytes");
  return plinth_host::shuffle_from<kind, T>(mask, value, from, site);
}
}  // namespace details

// Any group. Groups of other types convert to it.
class thread_group {
 public:
  static constexpr cuda::thread_scope thread_scope = cuda::thread_scope_device;

  unsigned long long size() const { return num_threads(); }
  inline unsigned long long num_threads() const;
  inline unsigned long long thread_rank() const;
  inline void sync(PLINTH_SITE) const;
  unsigned get_type() const { return kind_; }

 protected:
  explicit thread_group(details::group_kind kind) : kind_(kind) {}
  // A group of lanes of a warp.
  thread_group(unsigned mask, unsigned size) : kind_(details::coalesced_group_id), mask_(mask), size_(size) {}

  details::group_kind kind_;
  bool is_tiled_ = false;
  unsigned mask_ = 0;
  unsigned size_ = 0;
  unsigned meta_rank_ = 0;
  unsigned meta_size_ = 1;

  friend thread_group tiled_partition(const thread_group &, unsigned, plinth_host::Site);
};

// All threads of the launch. sync() needs a cooperative launch.
class grid_group : public thread_group {
 public:
  static constexpr unsigned _group_id = details::grid_group_id;
  struct arrival_token {};

  bool is_valid() const { return plinth_host::self().owner->launch->cooperative != 0; }
  void sync(PLINTH_SITE) const { plinth_host::grid_barrier(site); }
  arrival_token barrier_arrive() const { return {}; }
  void barrier_wait(arrival_token &&, PLINTH_SITE) const { plinth_host::grid_barrier(site); }

  static unsigned long long size() { return num_threads(); }
  static unsigned long long num_threads() { return num_blocks() * plinth_host::block_threads(); }
  static unsigned long long thread_rank() {
    return block_rank() * plinth_host::block_threads() + plinth_host::thread_rank();
  }
  static unsigned long long num_blocks() {
    return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
  }
  static unsigned long long block_rank() {
    return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static dim3 group_dim() { return dim_blocks(); }
  static dim3 dim_blocks() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
  static dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  static dim3 dim_threads() { return dim3(gridDim.x * blockDim.x, gridDim.y * blockDim.y, gridDim.z * blockDim.z); }
  static dim3 thread_index() {
    return dim3(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
                blockIdx.z * blockDim.z + threadIdx.z);
  }

 private:
  grid_group() : thread_group(details::grid_group_id) {}
  friend grid_group this_grid();
};

inline grid_group this_grid() { return grid_group(); }

class cluster_group {};
template <typename T = void>
inline cluster_group this_cluster() {
  static_assert(plinth_host::kNever<T>, "clusters of blocks are not supported on the host device");
  return cluster_group();
}

class thread_block : public thread_group {
 public:
  static constexpr unsigned _group_id = details::thread_block_id;
  static constexpr cuda::thread_scope thread_scope = cuda::thread_scope_block;
  struct arrival_token {};

  static void sync(PLINTH_SITE) { plinth_host::block_barrier(site); }
  arrival_token barrier_arrive() const { return {}; }
  void barrier_wait(arrival_token &&, PLINTH_SITE) const { plinth_host::block_barrier(site); }

  static unsigned size() { return num_threads(); }
  static unsigned num_threads() { return plinth_host::block_threads(); }
  static unsigned thread_rank() { return plinth_host::thread_rank(); }
  static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  static dim3 group_dim() { return dim_threads(); }
  static dim3 dim_threads() { return dim3(blockDim.x, blockDim.y, blockDim.z); }

 private:
  thread_block() : thread_group(details::thread_block_id) {}
  friend thread_block this_thread_block();
};

inline thread_block this_thread_block() { return thread_block(); }

// Memory that a GPU needs for tiles of more than 32 threads.
template <unsigned MaxBlockSize = 1024> struct block_tile_memory {};
template <unsigned MaxBlockSize>
inline thread_block this_thread_block(block_tile_memory<MaxBlockSize> &) {
  return this_thread_block();
}

// Threads of a warp. Their ranks are in the order of their lanes.
class coalesced_group : public thread_group {
 public:
  static constexpr unsigned _group_id = details::coalesced_group_id;
  static constexpr cuda::thread_scope thread_scope = cuda::thread_scope_block;

  unsigned size() const { return size_; }
  unsigned num_threads() const { return size_; }
  unsigned thread_rank() const { return unsigned(__builtin_popcount(mask_ & plinth_host::lanes_below())); }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }
  void sync(PLINTH_SITE) const { plinth_host::synchronize_warp(mask_, site); }

  template <typename T> details::shuffled<T> shfl(T &&value, int rank, PLINTH_SITE) const {
    return from_rank<plinth_host::Shuffle::index, details::shuffled<T>>(value, size_ == 32 ? rank & 31 : rank, site);
  }
  // A thread whose source would be beyond the group gets its own value.
  template <typename T> details::shuffled<T> shfl_down(T &&value, unsigned delta, PLINTH_SITE) const {
    return from_rank<plinth_host::Shuffle::down, details::shuffled<T>>(value, 0ll + thread_rank() + delta, site);
  }
  template <typename T> details::shuffled<T> shfl_up(T &&value, int delta, PLINTH_SITE) const {
    return from_rank<plinth_host::Shuffle::up, details::shuffled<T>>(value, 0ll + thread_rank() - delta, site);
  }
  int any(int predicate, PLINTH_SITE) const { return __ballot_sync(mask_, predicate, site) != 0; }
  int all(int predicate, PLINTH_SITE) const { return __ballot_sync(mask_, predicate, site) == mask_; }
  unsigned ballot(int predicate, PLINTH_SITE) const {
    return plinth_host::pack_lanes(mask_, __ballot_sync(mask_, predicate, site));
  }
  template <typename T> unsigned match_any(T value, PLINTH_SITE) const {
    static_assert(std::is_arithmetic<T>::value, "numbers are matched");
    return plinth_host::pack_lanes(mask_, __match_any_sync(mask_, value, site));
  }
  template <typename T> unsigned match_all(T value, int &predicate, PLINTH_SITE) const {
    static_assert(std::is_arithmetic<T>::value, "numbers are matched");
    return plinth_host::pack_lanes(mask_, __match_all_sync(mask_, value, &predicate, site));
  }

 private:
  explicit coalesced_group(unsigned mask) : thread_group(mask, unsigned(__builtin_popcount(mask))) {}
  unsigned lane_mask() const { return mask_; }

  template <plinth_host::Shuffle kind, typename T>
  T from_rank(const T &value, long long rank, plinth_host::Site site) const {
    const bool is_rank = rank >= 0 && rank < static_cast<long long>(size_);
    const unsigned from = is_rank ? plinth_host::lane_with_rank(mask_, unsigned(rank)) : plinth_host::lane();
    return details::shuffle<kind, T>(value, mask_, from, site);
  }

  friend struct plinth_host::GroupAccess;
  friend coalesced_group tiled_partition(const coalesced_group &, unsigned, plinth_host::Site);
};

inline coalesced_group coalesced_threads(PLINTH_SITE) {
  return plinth_host::GroupAccess::with_mask(plinth_host::active_mask(site));
}

namespace details {
// What tiles of one size have in common. A block's last tile may have fewer threads than its size says, as on a GPU.
template <unsigned Size>
class tile_operations {
  static_assert(Size != 0 && (Size & (Size - 1)) == 0 && Size <= 1024, "the size of a tile is a power of two");
  static_assert(Size <= 32, "tiles of more than 32 threads are not supported on the host device");

 public:
  static constexpr unsigned _group_id = coalesced_group_id;
  static constexpr cuda::thread_scope thread_scope = cuda::thread_scope_block;

  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned thread_rank() { return plinth_host::thread_rank() & (Size - 1); }
  static void sync(PLINTH_SITE) { plinth_host::synchronize_warp(lane_mask(), site); }

  template <typename T> shuffled<T> shfl(T &&value, int rank, PLINTH_SITE) const {
    return exchange<plinth_host::Shuffle::index, shuffled<T>>(value, unsigned(rank), site);
  }
  template <typename T> shuffled<T> shfl_down(T &&value, unsigned delta, PLINTH_SITE) const {
    return exchange<plinth_host::Shuffle::down, shuffled<T>>(value, delta, site);
  }
  template <typename T> shuffled<T> shfl_up(T &&value, unsigned delta, PLINTH_SITE) const {
    return exchange<plinth_host::Shuffle::up, shuffled<T>>(value, delta, site);
  }
  template <typename T> shuffled<T> shfl_xor(T &&value, unsigned ranks, PLINTH_SITE) const {
    return exchange<plinth_host::Shuffle::exchange, shuffled<T>>(value, ranks, site);
  }
  int any(int predicate, PLINTH_SITE) const { return __ballot_sync(lane_mask(), predicate, site) != 0; }
  int all(int predicate, PLINTH_SITE) const { return __ballot_sync(lane_mask(), predicate, site) == lane_mask(); }
  unsigned ballot(int predicate, PLINTH_SITE) const {
    return __ballot_sync(lane_mask(), predicate, site) >> first_lane();
  }
  template <typename T> unsigned match_any(T value, PLINTH_SITE) const {
    static_assert(std::is_arithmetic<T>::value, "numbers are matched");
    return __match_any_sync(lane_mask(), value, site) >> first_lane();
  }
  template <typename T> unsigned match_all(T value, int &predicate, PLINTH_SITE) const {
    static_assert(std::is_arithmetic<T>::value, "numbers are matched");
    return __match_all_sync(lane_mask(), value, &predicate, site) >> first_lane();
  }

 protected:
  static unsigned first_lane() { return plinth_host::lane() & ~(Size - 1); }
  static unsigned lane_mask() { return (0xffffffffu >> (32 - Size)) << first_lane(); }

 private:
  template <plinth_host::Shuffle kind, typename T>
  static T exchange(const T &value, unsigned operand, plinth_host::Site site) {
    return details::shuffle<kind, T>(value, lane_mask(), plinth_host::shuffle_source(kind, operand, int(Size)), site);
  }
};

template <typename Parent, unsigned Size> constexpr bool can_be_tiled = false;
template <unsigned Size> constexpr bool can_be_tiled<thread_block, Size> = true;
template <unsigned ParentSize, typename GrandParent, unsigned Size>
constexpr bool can_be_tiled<thread_block_tile<ParentSize, GrandParent>, Size> = Size < ParentSize;
}  // namespace details

// A tile of a block or of another tile. The position in the parent is known without storage.
template <unsigned Size, typename Parent>
class thread_block_tile : public details::tile_operations<Size> {
 public:
  static unsigned meta_group_rank() { return unsigned(Parent::thread_rank()) / Size; }
  static unsigned meta_group_size() { return (unsigned(Parent::size()) + Size - 1) / Size; }
  operator thread_block_tile<Size, void>() const { return thread_block_tile<Size, void>(*this); }

 private:
  thread_block_tile() {}
  friend struct plinth_host::GroupAccess;
  template <unsigned OfSize, typename OfParent>
  friend thread_block_tile<OfSize, OfParent> tiled_partition(const OfParent &);
};

template <unsigned Size>
class thread_block_tile<Size, void> : public details::tile_operations<Size>, public thread_group {
  typedef details::tile_operations<Size> operations;

 public:
  template <typename Parent>
  thread_block_tile(const thread_block_tile<Size, Parent> &tile) : thread_block_tile() {
    meta_rank_ = tile.meta_group_rank();
    meta_size_ = tile.meta_group_size();
  }

  using operations::_group_id;
  using operations::num_threads;
  using operations::size;
  using operations::sync;
  using operations::thread_rank;
  using operations::thread_scope;
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }

 private:
  thread_block_tile() : thread_group(operations::lane_mask(), Size) { is_tiled_ = true; }
  friend struct plinth_host::GroupAccess;
  friend thread_block_tile<1, void> this_thread();
};

inline thread_block_tile<1, void> this_thread() { return thread_block_tile<1, void>(); }

template <unsigned Size, typename Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent &) {
  static_assert(details::can_be_tiled<Parent, Size>, "a tile is of a block, or of a larger tile");
  return thread_block_tile<Size, Parent>();
}

// Divides a group into tiles of a size that is known at run time: a power of two, up to 32.
inline coalesced_group tiled_partition(const coalesced_group &parent, unsigned size, PLINTH_SITE) {
  if (size == 0 || size > 32 || (size & (size - 1)) != 0) {
    plinth_host::trap("tiled_partition: the size of a tile is a power of two, up to 32", site);
  }
  if (parent.size() <= size) return parent;
  const unsigned rank = parent.thread_rank() / size;
  unsigned mask = 0;
  for (unsigned member = rank * size; member < rank * size + size && member < parent.size(); member++) {
    mask |= 1u << plinth_host::lane_with_rank(parent.mask_, member);
  }
  coalesced_group tile(mask);
  tile.is_tiled_ = parent.is_tiled_;
  return plinth_host::GroupAccess::with_position(tile, rank, (parent.size() + size - 1) / size);
}

inline thread_group tiled_partition(const thread_group &parent, unsigned size, PLINTH_SITE) {
  if (parent.get_type() == details::coalesced_group_id) {
    const coalesced_group group = plinth_host::GroupAccess::with_position(
        plinth_host::GroupAccess::with_mask(parent.mask_), parent.meta_rank_, parent.meta_size_);
    return tiled_partition(group, size, site);
  }
  if (parent.get_type() != details::thread_block_id || size == 0 || size > 32 || (size & (size - 1)) != 0) {
    plinth_host::trap("tiled_partition: a block or a tile is divided into tiles of a power of two, up to 32", site);
  }
  const unsigned first = plinth_host::lane() & ~(size - 1);
  const unsigned mask = (0xffffffffu >> (32 - size)) << first & plinth_host::warp_mask();
  return plinth_host::GroupAccess::with_position(
      plinth_host::GroupAccess::with_mask(mask), plinth_host::thread_rank() / size,
      (plinth_host::block_threads() + size - 1) / size);
}

inline unsigned long long thread_group::num_threads() const {
  return kind_ == details::grid_group_id     ? grid_group::num_threads()
         : kind_ == details::thread_block_id ? thread_block::num_threads()
                                             : size_;
}

inline unsigned long long thread_group::thread_rank() const {
  return kind_ == details::grid_group_id     ? grid_group::thread_rank()
         : kind_ == details::thread_block_id ? thread_block::thread_rank()
                                             : unsigned(__builtin_popcount(mask_ & plinth_host::lanes_below()));
}

inline void thread_group::sync(plinth_host::Site site) const {
  if (kind_ == details::grid_group_id) return plinth_host::grid_barrier(site);
  if (kind_ == details::thread_block_id) return plinth_host::block_barrier(site);
  plinth_host::synchronize_warp(mask_, site);
}

template <typename Group>
inline void sync(const Group &group, PLINTH_SITE) {
  group.sync(site);
}
template <typename Group>
inline auto thread_rank(const Group &group) -> decltype(group.thread_rank()) {
  return group.thread_rank();
}
template <typename Group>
inline auto group_size(const Group &group) -> decltype(group.num_threads()) {
  return group.num_threads();
}
template <typename Group>
inline bool is_valid(const Group &group) {
  return group.is_valid();
}

namespace details {
template <typename Group, typename T>
inline coalesced_group divide_by_label(const Group &group, T label, plinth_host::Site site) {
  const unsigned all = plinth_host::GroupAccess::mask(group), mine = __match_any_sync(all, label, site);
  const unsigned first = unsigned(__builtin_ctz(mine));
  const unsigned firsts = __ballot_sync(all, plinth_host::lane() == first, site);
  return plinth_host::GroupAccess::with_position(plinth_host::GroupAccess::with_mask(mine),
                                                 unsigned(__builtin_popcount(firsts & ((1u << first) - 1))),
                                                 unsigned(__builtin_popcount(firsts)));
}
}  // namespace details

// Divides a tile or a coalesced group into the threads with a true predicate, at position 1, and the others.
template <typename Group, typename = std::enable_if_t<plinth_host::is_of_one_warp<Group>>>
inline coalesced_group binary_partition(const Group &group, bool predicate, PLINTH_SITE) {
  const unsigned all = plinth_host::GroupAccess::mask(group), set = __ballot_sync(all, predicate, site);
  if (set == all || set == 0) return plinth_host::GroupAccess::with_mask(all);
  return plinth_host::GroupAccess::with_position(
      plinth_host::GroupAccess::with_mask(predicate ? set : all & ~set), predicate ? 1 : 0, 2);
}

// Divides a tile or a coalesced group into the threads with equal labels.
template <typename Group, typename T, typename = std::enable_if_t<plinth_host::is_of_one_warp<Group>>>
inline coalesced_group labeled_partition(const Group &group, T label, PLINTH_SITE) {
  static_assert(std::is_integral<T>::value || std::is_pointer<T>::value, "a label is an integer or a pointer");
  if constexpr (std::is_same<T, bool>::value) {
    return binary_partition(group, label, site);
  } else if constexpr (std::is_pointer<T>::value) {
    return details::divide_by_label(group, reinterpret_cast<unsigned long long>(label), site);
  } else {
    return details::divide_by_label(group, label, site);
  }
}

// Calls a function in one thread of a group.
template <typename Group, typename Function, typename... Arguments>
inline void invoke_one(const Group &group, Function &&function, Arguments &&...arguments) {
  if (group.thread_rank() == 0) std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
}

// Calls a function in one thread of a tile or a coalesced group. All threads receive its result.
template <typename Group, typename Function, typename... Arguments>
inline auto invoke_one_broadcast(const Group &group, Function &&function, Arguments &&...arguments)
    -> std::remove_reference_t<decltype(std::forward<Function>(function)(std::forward<Arguments>(arguments)...))> {
  typedef decltype(std::forward<Function>(function)(std::forward<Arguments>(arguments)...)) Result;
  static_assert(!std::is_void<Result>::value, "invoke_one calls functions without a result");
  static_assert(plinth_host::is_of_one_warp<Group>, "the group has to be a tile or a coalesced group");
  details::shuffled<Result> result;
  if (group.thread_rank() == 0) {
    result = std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
  }
  return group.shfl(result, 0);
}
}  // namespace cooperative_groups

inline cooperative_groups::coalesced_group plinth_host::GroupAccess::with_mask(unsigned mask) {
  return cooperative_groups::coalesced_group(mask);
}
