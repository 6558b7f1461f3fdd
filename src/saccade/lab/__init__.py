"""Tasks in; finished runs and tables of rows out. The lab folder, its plan, its workers."""
