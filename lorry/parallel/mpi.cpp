// Open MPI. One thread makes all calls of MPI: the program's threads hand it jobs and wait for them with a time-out,
// because a call of MPI itself waits for ever. So no call of it may block but those of start-up and of the end.

#include "lorry/parallel/transport.h"

#ifdef LORRY_WITH_MPI

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "lorry/base/env.h"
#include "lorry/base/error.h"
#include "lorry/layout/dtype_enum.h"
#include "lorry/layout/half.h"
#include "lorry/parallel/member.h"

namespace lorry::parallel {
namespace {

using Clock = std::chrono::steady_clock;

/// Counts of MPI are ints. Larger pieces are moved in several parts, or as elements of a larger type.
constexpr int64_t kMostElements = int64_t{1} << 30;

[[noreturn]] void failed(int error, const char* call) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  raise<ParallelError>("{} failed: {}", call, std::string_view(text, static_cast<size_t>(length)));
}
void check(int error, const char* call) {
  if (error != MPI_SUCCESS) failed(error, call);
}

// ---- dtypes that MPI does not have ----------------------------------------------------------------------------------

template <class T>
T join(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::sum:
      return a + b;
    case Reduction::product:
      return a * b;
    // As PyTorch's: NaN wins.
    case Reduction::minimum:
      return b != b || b < a ? b : a;
    case Reduction::maximum:
      return b != b || b > a ? b : a;
  }
  return a;
}

/// The type in which elements are joined: sums of integers wrap around.
template <class T>
using JoinedIn =
    std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<kFloatingType<T>, float, int64_t>>;

/// A reduction of MPI: `to` = `from` joined with `to`. 16-bit floats are joined in f32 and rounded each time.
template <class T, Reduction kReduction>
void join_elements(void* from, void* to, int* count, MPI_Datatype*) {
  const T* const a = static_cast<const T*>(from);
  T* const b = static_cast<T*>(to);
  using J = JoinedIn<T>;
  for (int i = 0; i < *count; ++i) {
    if constexpr (std::is_integral_v<T> && (kReduction == Reduction::sum || kReduction == Reduction::product))
      b[i] = static_cast<T>(join<uint64_t>(kReduction, static_cast<uint64_t>(a[i]), static_cast<uint64_t>(b[i])));
    else
      b[i] = static_cast<T>(join<J>(kReduction, static_cast<J>(a[i]), static_cast<J>(b[i])));
  }
}

/// The types and operations of this process.
class Types {
 public:
  Types() {
    for (int t = 0; t < kDTypeCount; ++t)
      visit(static_cast<DType>(t), [&]<class T>(Type<T>) {
        MPI_Type_contiguous(static_cast<int>(sizeof(T)), MPI_BYTE, &types_[t]);
        MPI_Type_commit(&types_[t]);
        MPI_Op_create(join_elements<T, Reduction::sum>, 1, &ops_[t][0]);
        MPI_Op_create(join_elements<T, Reduction::product>, 1, &ops_[t][1]);
        MPI_Op_create(join_elements<T, Reduction::minimum>, 1, &ops_[t][2]);
        MPI_Op_create(join_elements<T, Reduction::maximum>, 1, &ops_[t][3]);
      });
  }
  MPI_Datatype type(DType t) const { return types_[static_cast<int>(t)]; }
  MPI_Op op(DType t, Reduction reduction) const { return ops_[static_cast<int>(t)][static_cast<int>(reduction)]; }

 private:
  MPI_Datatype types_[kDTypeCount];
  MPI_Op ops_[kDTypeCount][4];
};

// ---- the thread -----------------------------------------------------------------------------------------------------

/// Something for the thread to do. start() begins calls of MPI that do not block, or makes one of start-up. It refers
/// to nothing that a program destroys when a rank has failed: the thread may be about to call it.
struct Task {
  std::function<void(Task&)> start;
  std::vector<MPI_Request> requests = {};
  std::vector<std::function<void()>> ends = {};  ///< when the requests are done
  std::atomic<bool> is_done = false;
  std::string error = {};  ///< what a call of MPI said
};

class Engine {
 public:
  static Engine& get() {
    static Engine* const engine = new Engine;  // the thread may be inside MPI when the process ends
    return *engine;
  }

  void begin(Member& member) {
    {
      const std::lock_guard lock(mutex_);
      if (has_begun_) return;
      has_begun_ = true;
      ::on_exit(at_exit, this);
      std::thread([this, failed = member.failed_flag()] { run(*failed); }).detach();
    }
    submit([](Task&) {
      int has_mpi = 0;
      MPI_Initialized(&has_mpi);
      int provided = 0;
      if (!has_mpi) check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    });
  }
  bool has_begun() const { return has_begun_; }

  std::shared_ptr<Task> submit(std::function<void(Task&)> start) {
    auto task = std::make_shared<Task>();
    task->start = std::move(start);
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(task);
    }
    changed_.notify_all();
    return task;
  }

  /// False after the time, or once a rank has failed.
  bool wait(const Task& task, Member& member, double seconds) {
    const Clock::time_point spin_end = Clock::now() + std::chrono::microseconds(50);
    while (!task.is_done && Clock::now() < spin_end) std::this_thread::yield();
    if (task.is_done) return true;
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    std::unique_lock lock(mutex_);
    while (!task.is_done && !member.has_failed() && Clock::now() < end)
      done_.wait_for(lock, std::chrono::milliseconds(20));
    return task.is_done;
  }

  const Types& types() {
    if (!types_) types_ = std::make_unique<Types>();
    return *types_;
  }

 private:
  /// A process that ends after a failure may leave the thread in a call of MPI that never returns, such as MPI_Finalize
  /// without the others. MPI's own handlers, which run after this one, would wait for that.
  static void at_exit(int status, void* self) {
    const Engine& engine = *static_cast<const Engine*>(self);
    for (int i = 0; i < 100 && engine.is_inside_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (!engine.is_inside_) return;
    std::fflush(nullptr);
    std::_Exit(status);
  }

  /// Until a rank has failed: `failed`, which this thread may outlive the member by. No call of MPI follows then.
  void run(const std::atomic<bool>& failed) {
    for (;;) {
      std::shared_ptr<Task> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !waiting_.empty(); });
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (failed) return;
      is_inside_ = true;
      bool is_finished = true;
      try {
        task->start(*task);
        is_finished = finish(*task, failed);
        if (is_finished)
          for (const auto& end : task->ends) end();
      } catch (const std::exception& error) {
        task->error = error.what();
      }
      is_inside_ = false;
      if (!is_finished) return;
      task->start = nullptr;  // with the tensors that it holds
      {
        const std::lock_guard lock(mutex_);
        task->is_done = true;
      }
      done_.notify_all();
    }
  }
  /// Waits for the requests; false once a rank has failed. Polls as long as there is something to do: an exchange
  /// within one machine takes microseconds, or moves data in each poll, and one that waits for other ranks leaves them
  /// the processor.
  static bool finish(Task& task, const std::atomic<bool>& failed) {
    if (task.requests.empty()) return true;
    constexpr std::chrono::microseconds kMovesData{3};  // a poll that takes longer than this
    Clock::time_point active = Clock::now();
    for (int64_t i = 0;; ++i) {
      int is_done = 0;
      const Clock::time_point begin = Clock::now();
      check(MPI_Testall(static_cast<int>(task.requests.size()), task.requests.data(), &is_done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
      if (is_done) return true;
      if (i % 16 == 15 && failed) return false;
      const Clock::time_point end = Clock::now();
      if (end - begin > kMovesData) active = end;
      const Clock::duration waited = end - active;
      if (waited > std::chrono::milliseconds(1))
        std::this_thread::sleep_for(std::min<Clock::duration>(waited / 16, std::chrono::milliseconds(1)));
      else
        std::this_thread::yield();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_, done_;
  std::deque<std::shared_ptr<Task>> waiting_;
  std::atomic<bool> has_begun_ = false;
  std::atomic<bool> is_inside_ = false;  ///< the thread may be in a call of MPI
  std::unique_ptr<Types> types_;         ///< of the thread
};

// ---- a group --------------------------------------------------------------------------------------------------------

class MpiPending final : public Pending {
 public:
  MpiPending(std::shared_ptr<Task> task, Member& member, Noted noted)
      : task_(std::move(task)), member_(member), noted_(noted) {}
  void wait() override {
    if (!Engine::get().wait(*task_, member_, member_.timeout_s())) {
      member_.throw_if_failed();
      member_.throw_overdue(*noted_.calls, noted_.number);
    }
    if (!task_->error.empty()) raise<ParallelError>("{}", task_->error);
  }
  bool is_done() const override { return task_->is_done; }

 private:
  const std::shared_ptr<Task> task_;
  Member& member_;
  const Noted noted_;
};

/// Begins the calls of a job, for a task.
struct JobStart {
  const Job job;
  const MPI_Comm comm;
  const int own, size;

  void operator()(Task& task) const {
    for (const Piece& piece : job.pieces)
      if (piece.count > 0) start(piece, task);
  }

 private:
  void start(const Piece& piece, Task& task) const {
    switch (job.collective) {
      case Collective::all_reduce:
      case Collective::broadcast:
      case Collective::send:
      case Collective::receive:
        for (int64_t at = 0; at < piece.count; at += kMostElements) start_range(piece, at, task);
        return;
      case Collective::reduce_scatter:
        return start_reduce_scatter(piece, task);
      case Collective::all_gather:
      case Collective::all_to_all:
        return start_parts(piece, task);
    }
  }
  static int count_from(const Piece& piece, int64_t at) {
    return static_cast<int>(std::min(piece.count - at, kMostElements));
  }
  /// Elements `at` and on of a piece that has no parts.
  void start_range(const Piece& piece, int64_t at, Task& task) const {
    const int count = count_from(piece, at);
    const MPI_Datatype type = Engine::get().types().type(piece.dtype());
    MPI_Request& request = task.requests.emplace_back();
    if (job.collective == Collective::all_reduce)
      check(MPI_Iallreduce(piece.from() == piece.to() ? MPI_IN_PLACE : piece.from(at), piece.to(at), count, type,
                           Engine::get().types().op(piece.dtype(), job.reduction), comm, &request),
            "MPI_Iallreduce");
    else if (job.collective == Collective::broadcast)
      check(MPI_Ibcast(piece.to(at), count, type, job.root, comm, &request), "MPI_Ibcast");
    else if (job.collective == Collective::send)
      check(MPI_Isend(piece.from(at), count, type, job.root, 0, comm, &request), "MPI_Isend");
    else
      check(MPI_Irecv(piece.to(at), count, type, job.root, 0, comm, &request), "MPI_Irecv");
  }
  void start_reduce_scatter(const Piece& piece, Task& task) const {
    const MPI_Datatype type = Engine::get().types().type(piece.dtype());
    const MPI_Op op = Engine::get().types().op(piece.dtype(), job.reduction);
    if (piece.count <= kMostElements) {
      check(MPI_Ireduce_scatter_block(piece.from(), piece.to(), static_cast<int>(piece.count), type, op, comm,
                                      &task.requests.emplace_back()),
            "MPI_Ireduce_scatter_block");
      return;
    }
    for (int rank = 0; rank < size; ++rank)
      for (int64_t at = 0; at < piece.count; at += kMostElements)
        check(MPI_Ireduce(piece.from(rank * piece.count + at), piece.to(at), count_from(piece, at), type, op, rank,
                          comm, &task.requests.emplace_back()),
              "MPI_Ireduce");
  }
  /// A part for each rank, as one element of a type that is as large as the part.
  void start_parts(const Piece& piece, Task& task) const {
    MPI_Datatype part = Engine::get().types().type(piece.dtype());
    int count = count_from(piece, 0);
    if (piece.count > kMostElements) {
      part = large_type(part, piece.count, size_of(piece.dtype()));
      count = 1;
      task.ends.push_back([part]() mutable { MPI_Type_free(&part); });
    }
    MPI_Request& request = task.requests.emplace_back();
    if (job.collective == Collective::all_gather)
      check(MPI_Iallgather(piece.from() == piece.to(own * piece.count) ? MPI_IN_PLACE : piece.from(), count, part,
                           piece.to(), count, part, comm, &request),
            "MPI_Iallgather");
    else
      check(MPI_Ialltoall(piece.from(), count, part, piece.to(), count, part, comm, &request), "MPI_Ialltoall");
  }
  static MPI_Datatype large_type(MPI_Datatype element, int64_t count, int64_t size) {
    const int blocks = static_cast<int>(count / kMostElements), rest = static_cast<int>(count % kMostElements);
    MPI_Datatype block, whole;
    MPI_Type_contiguous(static_cast<int>(kMostElements), element, &block);
    const int lengths[] = {blocks, rest};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(blocks * kMostElements * size)};
    const MPI_Datatype types[] = {block, element};
    MPI_Type_create_struct(2, lengths, places, types, &whole);
    MPI_Type_commit(&whole);
    MPI_Type_free(&block);
    return whole;
  }
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const Members& members) : members_(members) {
    Engine::get().begin(members.member);
    const auto made = Engine::get().submit([comm = comm_, ranks = members.ranks](Task&) {
      MPI_Group all = MPI_GROUP_NULL, own = MPI_GROUP_NULL;
      check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
      check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &own), "MPI_Group_incl");
      check(MPI_Comm_create_group(MPI_COMM_WORLD, own, 0, comm.get()), "MPI_Comm_create_group");
      MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
      MPI_Group_free(&own);
      MPI_Group_free(&all);
    });
    MpiPending(made, members_.member, {members_.calls, 0}).wait();
  }
  ~MpiTransport() override {
    if (members_.member.has_failed() || std::uncaught_exceptions() > 0) return;
    const auto freed = Engine::get().submit([comm = comm_](Task&) { MPI_Comm_free(comm.get()); });
    Engine::get().wait(*freed, members_.member, members_.member.timeout_s());
  }

  std::shared_ptr<Pending> begin(Job job) override {
    const Noted noted = job.noted;
    const auto task = Engine::get().submit(JobStart{std::move(job), *comm_, members_.own, members_.size()});
    return std::make_shared<MpiPending>(task, members_.member, noted);
  }

 private:
  const Members& members_;
  const std::shared_ptr<MPI_Comm> comm_ = std::make_shared<MPI_Comm>(MPI_COMM_NULL);  ///< made by the thread
};

}  // namespace

void end_mpi(Member& member) noexcept {
  Engine& engine = Engine::get();
  if (!engine.has_begun() || member.has_failed()) return;
  try {
    const auto task = engine.submit([](Task&) { MPI_Finalize(); });
    engine.wait(*task, member, member.timeout_s());
  } catch (...) {  // no memory for the task: the launcher is told by the end of the process
  }
}

std::unique_ptr<Transport> mpi_transport(const Members& members) {
  // Elsewhere each process would be a world of its own for MPI. srun starts MPI where it was built with PMIx.
  const bool has_mpi = members.launcher == Launcher::mpirun || env::text("PMIX_RANK");
  require<DeviceError>(has_mpi,
                       "CPU tensors travel through MPI, which {} has not started; start the processes with mpirun{}",
                       name(members.launcher), members.launcher == Launcher::srun ? ", or srun --mpi=pmix" : "");
  return std::make_unique<MpiTransport>(members);
}

}  // namespace lorry::parallel

#else

#include "lorry/base/error.h"

namespace lorry::parallel {

void end_mpi(Member&) noexcept {}
std::unique_ptr<Transport> mpi_transport(const Members&) {
  raise<DeviceError>(
      "CPU tensors of several processes need Open MPI, and this build has none (libopenmpi-dev was not "
      "installed)");
}

}  // namespace lorry::parallel

#endif
