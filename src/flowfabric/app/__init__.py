"""What an application is written with.

app          `App`: registers tasks, creates flows and workers
task         `Task`: a registered function with its settings; `Call`: a task with arguments
flow         `Flow`: a graph of calls
member       `Member`: one call of a flow, with its settings and what it waits for
feed         how the result of one member becomes the input of another
passable     whether a value of one type can be decoded as another
start_once   a flow is started once
schedule     `App.schedule`: what is executed at certain instants, and the options of that
depends      `Depends`: parameters of a handler that a factory provides
overrides    `App.override`: fakes for dependencies, in tests
codec        how arguments and results become bytes: JSON, MessagePack, or your own
result_type  what a task returns: checked when it is stored, and read as its annotation says
mismatch     why a value is not of the type that a task declares
unencodable  which part of a value a codec cannot encode

Refused when it is written, with what to write instead:

check_function  functions that cannot be tasks
check_types     types of arguments and results that cannot be decoded
check_call      what is submitted, or waited for, without being a call or a member
check_settings  settings that name no executor, codec or exception
"""
