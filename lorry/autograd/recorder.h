#pragma once

namespace lorry::autograd {

/// Makes the tape listen at the door. Called when a tensor first requires a gradient; later calls change nothing.
void install_recorder();

}  // namespace lorry::autograd
