#pragma once

// The functions of the lessons; table.cpp numbers them.

namespace lorry::bench::lessons {

class LessonRun;

void start(LessonRun& run);
void creation(LessonRun& run);
void data_types(LessonRun& run);
void transfers(LessonRun& run);
void batching(LessonRun& run);
void in_place(LessonRun& run);
void alignment(LessonRun& run);
void memory_layout(LessonRun& run);
void timing(LessonRun& run);
void call_overhead(LessonRun& run);
void optimizer_steps(LessonRun& run);
void hidden_waits(LessonRun& run);
void device_graphs(LessonRun& run);
void compiling(LessonRun& run);
void compression(LessonRun& run);

}  // namespace lorry::bench::lessons
