#pragma once

namespace lorry::autograd {

/// Makes the tape listen at the door. Called when a tensor first asks for a gradient; calling it again changes nothing.
void install_recorder();

}  // namespace lorry::autograd
