"""From a plan to native calls: what runs each kernel, where everything lies in memory, and the calls themselves."""
