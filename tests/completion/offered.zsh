# What zsh offers for the line it is given, one a line, and last the line it is left with. An interactive zsh on a terminal of its own
# is typed to, as a user does, with the user's .zshrc; what it adds to its list it tells besides.
zmodload zsh/zpty
told=$(mktemp -u) && mkfifo -m 600 $told
trap 'zpty -d typed; rm -f $told' EXIT

telling() {
  compadd() {
    local -a all
    # what is only sorted out is not offered
    if (( ! ${@[(I)-[OAD]]} )); then builtin compadd -A all "$@"; offered+=($all); fi
    builtin compadd "$@"
  }
}
tab() {
  offered=()
  zle complete-word
  print -rl -- $offered "$BUFFER" >$told
}

zpty typed zsh -i
zpty -w typed "told=$told; $(functions telling tab); telling; zle -N tab; bindkey '^I' tab"
zpty -w -n typed "$1"$'\t'
cat $told
