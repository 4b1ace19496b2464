#pragma once

// CUPTI's functions, opened at run time.

#include <cupti.h>

#include <string>

namespace lorry::profile {

struct Cupti {
  /// The functions; null, with the reason, if CUPTI cannot be opened.
  static const Cupti* open(std::string& why_not);

  decltype(&cuptiGetTimestamp) get_timestamp;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityFlushAll) flush_all;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records;
  decltype(&cuptiActivityPushExternalCorrelationId) push_external;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_external;
  decltype(&cuptiGetCallbackName) callback_name;
  decltype(&cuptiGetResultString) result_string;
  decltype(&cuptiSetThreadIdType) set_thread_id_type;
  // Of later versions; null if the library has none.
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp = nullptr;
  CUptiResult (*enable_driver_api)(CUpti_CallbackId function, uint8_t enable) = nullptr;
  CUptiResult (*enable_runtime_api)(CUpti_CallbackId function, uint8_t enable) = nullptr;

  std::string text_of(CUptiResult result) const {
    const char* text = nullptr;
    return result_string(result, &text) == CUPTI_SUCCESS && text != nullptr ? text : "an unknown error";
  }
};

}  // namespace lorry::profile
