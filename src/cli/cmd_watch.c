#include "cli.h"
static mics_status run_watch(cli_call *call)
{
    (void)call;
    return MICS_OK;
}
const cli_verb cmd_watch = {
    .name = "watch", .summary = "x", .arguments = "RUN", .about = "x", .run = run_watch};
