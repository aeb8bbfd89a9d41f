// heddle manual: the manual page and the shells' completion, from the table of commands and flags
// that the command line itself is parsed by, so that they cannot differ from it.
#include <iostream>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/command.h"

namespace heddle::cli {
namespace {

struct Flag {
  std::vector<std::string> names;  // "-h", "--help"; an argument has none
  std::string argument;            // "OP", "k=v,...", "cold|warm"; "" = it takes none
  std::string description;
};

// A command, below which there may be others.
struct Entry {
  std::string path;  // "cluster slurm"; "" = the program
  std::string description, footer;
  std::vector<Flag> flags, arguments;
  std::vector<std::string> below;
};

// Groups of options are commands without a name, whose flags are their parent's.
void AddFlags(const CLI::App& app, Entry& entry) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;                             // hidden
    if (app.get_name().empty() && option == app.get_help_ptr()) continue;  // its parent's
    Flag flag;
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    if (option->get_items_expected_max() > 0) flag.argument = option->get_type_name();
    flag.description = option->get_description();
    if (!option->get_default_str().empty()) {
      absl::StrAppend(&flag.description, " [", option->get_default_str(), "]");
    }
    if (flag.names.empty()) {
      entry.arguments.push_back(std::move(flag));
    } else {
      entry.flags.push_back(std::move(flag));
    }
  }
}

void AddEntries(const CLI::App& app, const std::string& path, std::vector<Entry>& entries) {
  const size_t own = entries.size();
  entries.push_back({path, app.get_description(), app.get_footer(), {}, {}, {}});
  AddFlags(app, entries[own]);
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (below->get_name().empty()) {
      AddFlags(*below, entries[own]);
      continue;
    }
    entries[own].below.push_back(below->get_name());
    AddEntries(*below, absl::StrCat(path, path.empty() ? "" : " ", below->get_name()), entries);
  }
}

// ------------------------------------------------------------------------------------ manual page

// As text of a line of its own.
std::string Troff(const std::string& text) {
  const std::string plain = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n", " "}});
  const bool request = !plain.empty() && (plain[0] == '.' || plain[0] == '\'');
  return request ? "\\&" + plain : plain;
}

void PrintFlags(const std::vector<Flag>& flags) {
  for (const Flag& flag : flags) {
    std::cout << ".TP\n\\fB" << Troff(absl::StrJoin(flag.names, ", ")) << "\\fR";
    if (!flag.argument.empty()) std::cout << " \\fI" << Troff(flag.argument) << "\\fR";
    std::cout << "\n" << Troff(flag.description) << "\n";
  }
}

void PrintManual(const std::vector<Entry>& entries) {
  std::cout << ".TH HEDDLE 1 \"\" \"heddle " HEDDLE_VERSION "\" \"User Commands\"\n"
            << ".SH NAME\nheddle \\- finds fast GPU kernels for tensor operators\n"
            << ".SH SYNOPSIS\n.B heddle\n.I COMMAND\n[\\fIflags\\fR]\n"
            << ".SH DESCRIPTION\n"
            << Troff(entries[0].description) << "\n.SH OPTIONS\n";
  PrintFlags(entries[0].flags);
  std::cout << ".SH COMMANDS\n";
  for (const Entry& entry : entries) {
    if (entry.path.empty()) continue;
    std::vector<std::string> words{"heddle " + entry.path};
    for (const Flag& argument : entry.arguments) words.push_back(argument.argument);
    std::cout << ".SS " << Troff(absl::StrJoin(words, " ")) << "\n"
              << Troff(entry.description) << "\n";
    PrintFlags(entry.flags);
    // Commands without one of their own have their parent's.
    if (!entry.footer.empty() && entry.footer != entries[0].footer)
      std::cout << ".PP\n" << Troff(entry.footer) << "\n";
  }
  std::cout << ".SH EXIT STATUS\n" << Troff(entries[0].footer) << "\n";
}

// ------------------------------------------------------------------------------------- completion

std::string Quoted(const std::string& text) { return absl::StrCat("'", text, "'"); }

// "cold|warm" are values; "FILE|FOLDER" says what they are.
bool IsChoice(const std::string& argument) {
  return absl::StrContains(argument, '|') && absl::c_all_of(argument, [](unsigned char c) {
           return absl::ascii_islower(c) || c == '|';
         });
}

// Sets `at` to the command that the words before the cursor name, and `list` to what may follow.
void PrintTables(const std::vector<Entry>& entries) {
  std::vector<std::string> paths;
  for (const Entry& entry : entries) {
    if (!entry.path.empty()) paths.push_back(Quoted(" " + entry.path));
  }
  std::cout << "  for word in \"${before[@]}\"; do\n    case \"$at $word\" in\n      "
            << absl::StrJoin(paths, "|") << ") at=\"$at $word\";;\n    esac\n  done\n"
            << "  case \"$at $previous\" in\n";
  for (const Entry& entry : entries) {
    const std::string at = entry.path.empty() ? "" : " " + entry.path;
    for (const Flag& flag : entry.flags) {
      if (flag.argument.empty()) continue;
      std::vector<std::string> cases;
      for (const std::string& name : flag.names) cases.push_back(Quoted(at + " " + name));
      // Of what is no choice nothing is known here: the shell proposes files.
      const std::string values =
          IsChoice(flag.argument) ? absl::StrReplaceAll(flag.argument, {{"|", " "}}) : "";
      std::cout << "    " << absl::StrJoin(cases, "|") << ") list=" << Quoted(values) << ";;\n";
    }
  }
  std::cout << "    *) case $at in\n";
  for (const Entry& entry : entries) {
    std::vector<std::string> words = entry.below;
    for (const Flag& flag : entry.flags) words.push_back(flag.names.back());
    std::cout << "      " << Quoted(entry.path.empty() ? "" : " " + entry.path)
              << ") list=" << Quoted(absl::StrJoin(words, " ")) << ";;\n";
  }
  std::cout << "    esac;;\n  esac\n";
}

void PrintCompletion(const std::vector<Entry>& entries, bool zsh) {
  if (zsh) {
    std::cout << "#compdef heddle\n_heddle() {\n  local at= list= word previous=$words[CURRENT-1]\n"
              << "  local -a before=(\"${(@)words[2,CURRENT-1]}\")\n";
  } else {
    std::cout << "_heddle() {\n  local at= list= word previous=${COMP_WORDS[COMP_CWORD-1]}\n"
              << "  local -a before=(\"${COMP_WORDS[@]:1:COMP_CWORD-1}\")\n";
  }
  PrintTables(entries);
  if (zsh) {
    std::cout << "  if [[ -n $list ]]; then compadd -- ${=list}; else _files; fi\n}\n"
              << "_heddle \"$@\"\n";
  } else {
    std::cout << "  COMPREPLY=($(compgen -W \"$list\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n"
              << "complete -o default -F _heddle heddle\n";
  }
}

}  // namespace

void AddManual(CLI::App& app, Selected selected) {
  auto what = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand(
      "manual", "print the manual page, or a shell's completion, as packages install them");
  sub->add_option("what", *what, "what to print")
      ->type_name("man|bash|zsh")
      ->check(OneOf({"man", "bash", "zsh"}))
      ->required();
  sub->footer("For this shell: source <(heddle manual bash)");
  sub->callback([what, selected, root = &app] {
    *selected = [what, root]() -> Result {
      std::vector<Entry> entries;
      AddEntries(*root, "", entries);
      if (*what == "man") {
        PrintManual(entries);
      } else {
        PrintCompletion(entries, *what == "zsh");
      }
      return kDone;
    };
  });
}

}  // namespace heddle::cli
