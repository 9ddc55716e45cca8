"""What applications use: tasks, the app, the client, handles."""
