// Ctrl-C and SIGTERM as a request to stop, which long commands look at.
#ifndef HEDDLE_CLI_INTERRUPT_H_
#define HEDDLE_CLI_INTERRUPT_H_

namespace heddle::cli {

// From now on SIGINT and SIGTERM are remembered; the second one ends the process at once (130).
// SIGUSR1, by which `serve` asks the daemon that it has started, counts as the first only.
// What is recorded by then is durable.
void CatchInterrupts();
bool Interrupted();

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_INTERRUPT_H_
