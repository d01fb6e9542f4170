// A library within speedscope looks for the modules of node by making code out of text, and goes on where that fails. The policy
// of its page refuses such code anyway; so that nothing is complained about, it is refused here first.

globalThis.eval = () => {
  throw new EvalError("code is not made out of text here");
};
