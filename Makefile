# The two commands of a newcomer are `make demo` and `make test`; each works by itself on a fresh machine.
JOBS ?= $(shell nproc)
BUILD := build/release
LORRY := $(BUILD)/lorry

.PHONY: help build command demo test bench check asan ubsan tsan fuzz install-deps clean
help:
	@echo "make demo      install what is missing, build, train a small GPT on the fortunes, print one of its own"
	@echo "make test      install what is missing, build everything, run every test"
	@echo "make build     build everything; the command is $(LORRY)"
	@echo "make check     check the form and the structure of the tree, without building"
	@echo "make bench     measure this machine (bench/measure also measures PyTorch beside it)"
	@echo "make asan | ubsan | tsan    the tests under a sanitizer"
	@echo "make fuzz      ten minutes of fuzzing the safetensors reader (FUZZ_SECONDS=N for longer)"
	@echo "make clean     remove everything built; demo/ stays"

install-deps:
	@tools/install-deps build

# Every target goes through the build system, which knows what is out of date.
$(BUILD)/build.ninja: | install-deps
	cmake --preset release

build: install-deps $(BUILD)/build.ninja
	cmake --build --preset release -j $(JOBS)

command: install-deps $(BUILD)/build.ninja
	cmake --build --preset release -j $(JOBS) --target lorry_command

demo:
	@tools/install-deps build demo
	@$(MAKE) --no-print-directory command
	@tools/demo $(LORRY)

test: build
	@tools/install-deps tests || true  # profile.perfetto is skipped then
	ctest --preset release

# Each prints what it finds; the tests of the checks are among those of `make test`.
CHECKS := tools/check_format.py tools/check_includes.py tools/check_types.py tools/long_functions.py \
	tools/change_cost.py "tools/api_reference.py --check" "tools/update_readme.py --check" "tests/docs/pages_test.py ."
check:
	@tools/install-deps checks
	@status=0; for check in $(CHECKS); do $$check || { echo "failed: $$check" >&2; status=1; }; done; exit $$status

bench: command
	$(LORRY) bench overhead train --json build/bench.json

asan ubsan tsan:
	@tools/install-deps build sanitizers
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --preset $@

FUZZ_SECONDS ?= 600
fuzz:
	@tools/install-deps build sanitizers
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS) --target lorry_safetensors_fuzz
	tests/fuzz/make_safetensors_corpus.py build/fuzz/safetensors
	build/fuzz/tests/lorry_safetensors_fuzz -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 \
		-dict=build/fuzz/safetensors.dict build/fuzz/safetensors

clean:
	rm -rf build
